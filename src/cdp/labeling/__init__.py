"""From views and labeled identities to labels: the one pipeline behind `CDP`, `cdp label`, `cdp run` and the studies."""
