"""Charts of the performance harness."""
