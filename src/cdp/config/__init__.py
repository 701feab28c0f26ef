"""Recipes of `cdp run`: what can be set, how it is read, written, overridden and checked."""
