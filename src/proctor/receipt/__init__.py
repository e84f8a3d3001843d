"""A run packed so that others can check it: every digest, every number, offline."""
