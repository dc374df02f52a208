"""Asking a model: vLLM in process, vLLM servers, transformers."""
