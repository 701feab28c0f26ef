"""The blocks of the mediator's inputs, in the paper's order; a module of its own, so that `cdp --help` need not import NumPy."""

PAPER_INPUTS = ("relationship", "affinity", "distribution")
ALL_INPUTS = (*PAPER_INPUTS, "common_neighbors")
