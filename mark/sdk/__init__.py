"""What users import beside models: a service, to be measured, simulated, planned and served from Python."""
