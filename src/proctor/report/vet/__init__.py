"""The task certificate: what a task was tried against, and what that says of it."""
