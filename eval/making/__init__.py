"""Multi-hop questions made from linked passages of a user's own documents: ``corag questions``."""
