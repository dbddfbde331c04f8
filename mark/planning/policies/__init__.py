"""One file per policy, and the registry that knows them by name."""
