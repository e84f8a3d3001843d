"""One attempt at one trial, from start to record."""
