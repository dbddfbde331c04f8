"""Questions asked of the simulator: compare, attribution, reconcile, decisions."""
