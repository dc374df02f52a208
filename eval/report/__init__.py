"""Runs as one self-contained HTML page: tables, plots and every question's trace, read without a server or a
network.
"""
