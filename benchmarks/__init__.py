"""Speed and memory as ratios to something measured in the same run; quality on real faces with its spread."""
