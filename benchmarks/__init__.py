"""Benchmarks: each measures a ratio inside one run, against an obvious alternative."""
