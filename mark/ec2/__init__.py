"""How EC2 behaves, as rules without I/O that the simulator and the testbed share."""
