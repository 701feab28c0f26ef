"""The report of a run: one page, a pure function of run.json and the artifacts next to it."""
