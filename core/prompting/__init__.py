"""Prompts as values: templates, what is rendered into them, and what is left out when they are too long."""
