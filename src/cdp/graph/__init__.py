"""Embeddings -> KnnGraph: exact (the oracle) and approximate search, by cosine similarity."""
