"""The public Python interface beside models: a service that can be measured, simulated, planned and served."""
