"""What solves a task inside a sandbox."""
