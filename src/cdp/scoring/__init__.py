"""Section 3.1 of the paper: from k-NN graphs to scored pairs."""
