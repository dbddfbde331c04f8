"""The compiled loops over stages: requests one by one, in arrival order, over flat arrays."""
