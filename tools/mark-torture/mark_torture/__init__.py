"""Run the control plane in a simulated world, under faults drawn from a seed, and check named invariants."""
