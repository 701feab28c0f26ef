"""Names of the mediator's input blocks in the paper's order; importable without NumPy."""

PAPER_INPUTS = ("relationship", "affinity", "distribution")
ALL_INPUTS = (*PAPER_INPUTS, "common_neighbors")
