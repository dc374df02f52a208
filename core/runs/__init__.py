"""A run as a folder: manifest, one line per finished question, shards."""
