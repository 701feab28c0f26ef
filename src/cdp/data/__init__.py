"""Files in, nouns out: embeddings and k-NN graphs in the layouts of this and of other projects."""
