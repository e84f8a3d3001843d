"""The files that the performance harness writes."""
