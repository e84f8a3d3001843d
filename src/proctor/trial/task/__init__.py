"""The parts of one attempt at a task."""
