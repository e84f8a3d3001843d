"""The isolated places where task trials happen."""
