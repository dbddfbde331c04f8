"""Planning: the port `Planner`, one file per policy, and the clairvoyant lower bound."""
