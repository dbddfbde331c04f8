"""The simulated cloud and its telemetry, behind the same ports as the real ones."""
