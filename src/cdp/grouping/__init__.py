"""Scored pairs -> Labels, by Algorithm 1 of the paper or by average linkage."""
