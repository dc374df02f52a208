"""From finished runs to tables."""
