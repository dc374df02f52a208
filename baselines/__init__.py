"""One file per published method that CoRAG and IRCoT are measured against."""
