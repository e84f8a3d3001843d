"""Numbers about numbers. Pure: no I/O, no clock."""
