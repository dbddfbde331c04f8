"""Studies on the simulator: comparisons, attribution, reconciliation, single decisions."""
