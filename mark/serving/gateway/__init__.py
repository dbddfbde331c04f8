"""One address before several replicas."""
