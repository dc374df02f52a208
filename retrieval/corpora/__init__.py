"""Corpora of passages in files: records and tables of any of the usual shapes."""
