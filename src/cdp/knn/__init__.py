"""Embeddings to k-NN graphs: exact search, and IVF-Flat over PCA-reduced vectors."""
