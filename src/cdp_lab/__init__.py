"""The laboratory: drawn faces, baselines, studies. Not imported by the core."""
