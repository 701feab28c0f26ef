"""How computations run: threads or Ray, memory, spill files, cached steps, progress. Results never depend on it."""
