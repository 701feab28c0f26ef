"""From scored pairs to groups: Algorithm 1, or average linkage."""
