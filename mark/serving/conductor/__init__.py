"""What takes queries through the stages of a pipeline: one backend, made of a replica for each stage."""
