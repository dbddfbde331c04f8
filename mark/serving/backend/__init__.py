"""The parts that answer requests on one instance: bouncer, batches, replica."""
