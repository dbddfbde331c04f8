"""What `mark deploy` stands on: Terraform, and the files that instances and functions boot from."""
