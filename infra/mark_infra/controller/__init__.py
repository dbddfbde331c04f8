"""The controller over AWS: which parts it is made of, and the process that runs it."""
