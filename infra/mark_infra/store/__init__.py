"""State that survives the controller: on this machine in SQLite, on AWS in DynamoDB."""
