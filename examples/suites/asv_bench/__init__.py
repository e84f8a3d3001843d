"""A suite for asv."""
