"""The parts of `mark deploy`: Terraform, and the files from which instances and functions boot."""
