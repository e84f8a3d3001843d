"""The task certificate: which checks a task had, and the verdict."""
