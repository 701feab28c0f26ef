"""Section 3.1 of the paper, a file per step: pairs, opinions, mediator or vote, propagation, soft labels."""
