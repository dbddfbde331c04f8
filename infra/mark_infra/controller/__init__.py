"""The controller on AWS: its parts, and the process that runs it."""
