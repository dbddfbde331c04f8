"""The control loop and its ports. Nothing here does I/O, reads the wall clock or global randomness."""
