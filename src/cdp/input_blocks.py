"""The blocks of the mediator's inputs, in the paper's order, and of the trees' evidence; a module of its own, so that `cdp --help` need not import NumPy."""

PAPER_INPUTS = ("relationship", "affinity", "distribution")
ALL_INPUTS = (*PAPER_INPUTS, "common_neighbors")
EVIDENCE = ("similarity", "ranks", "common_neighbors", "density")
