"""The CoRAG method (Wang et al., NeurIPS 2025, arXiv 2501.14342); open ``method.py`` first."""
