"""From retrieval chains to fine-tuned models."""
