"""The methods CDP is compared with: Embeddings -> Labels behind one interface, one file per method."""
