"""The nouns. Frozen, no I/O, no clock."""
