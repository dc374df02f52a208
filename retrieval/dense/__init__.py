"""Dense indexes: encoders, vectors, search."""
