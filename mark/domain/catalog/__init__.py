"""What can be bought and for which service: dated price tables, and service files. Both ship by name."""
