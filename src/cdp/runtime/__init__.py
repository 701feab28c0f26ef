"""Execution: threads or Ray, memory, spill files, cached steps, progress. Never affects results."""
