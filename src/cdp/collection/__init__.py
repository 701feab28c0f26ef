"""Collections: images that keep arriving, identities that keep their numbers, corrections that last."""
