"""Servers that speak JSON, and the Hugging Face hub."""
