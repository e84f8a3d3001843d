"""A race: a baseline and a candidate on the same tasks, until the verdict is reached."""
