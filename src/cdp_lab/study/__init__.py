"""Tables and figures of the paper: variants of a recipe over seeds, sharing finished stages."""
