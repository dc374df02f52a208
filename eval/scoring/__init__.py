"""Scorers, retrieval metrics, official scores and the judge."""
