"""How good are pairs and labels, where true identities are known."""
