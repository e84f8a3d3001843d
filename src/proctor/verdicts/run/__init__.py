"""A single run in sentences and figures."""
