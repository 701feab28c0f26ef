"""`cdp-lab`: baselines, studies and drawn faces; for those who compare and reproduce."""
