"""The compiled loops over stages: they process requests one by one, in arrival order, over flat arrays."""
