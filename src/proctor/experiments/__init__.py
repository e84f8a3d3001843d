"""Measured Python code: the base class, the registry and the built-in experiments."""
