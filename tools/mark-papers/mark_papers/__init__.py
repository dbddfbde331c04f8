"""The experiments of the papers that mark builds on, beside its own results: `mark reproduce`."""
