"""Every table and figure of the paper as one command: variants of a recipe, over seeds, with what they share made once."""
