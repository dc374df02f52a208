"""Datasets, official scorers, statistics, tables."""
