"""What answers requests on one instance: bouncer, batches, replica."""
