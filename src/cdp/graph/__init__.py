"""Embeddings -> KnnGraph: exact and approximate search, by cosine similarity."""
