"""IRCoT: interleaving retrieval with chain-of-thought (Trivedi et al. 2023, ACL)."""
