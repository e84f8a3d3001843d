"""Lockstep pairs: two versions measured by fresh processes that take turns on one CPU."""
