"""A gateway: one address in front of several replicas."""
