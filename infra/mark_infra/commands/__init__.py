"""Commands of `mark` that need AWS or the testbed: deploy, keys, controller, testbed."""
