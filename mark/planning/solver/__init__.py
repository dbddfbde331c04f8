"""The program that a plan solves, and its solvers."""
