"""A run packed so that a stranger can check it: every digest, every number, offline."""
