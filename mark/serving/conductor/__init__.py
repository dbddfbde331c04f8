"""What takes queries through the stages of a pipeline: one backend, with another one for each stage behind it."""
