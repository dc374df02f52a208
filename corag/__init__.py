"""CoRAG: chain-of-retrieval augmented generation (Wang et al. 2025, arXiv 2501.14342)."""
