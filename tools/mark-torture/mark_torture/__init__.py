"""The control plane in a simulated world, under faults that are drawn from a seed, watched by named invariants."""
