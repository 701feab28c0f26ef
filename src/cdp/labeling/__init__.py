"""From views and labeled identities to labels: the pipeline of `CDP`, `cdp label` and `cdp run`."""
