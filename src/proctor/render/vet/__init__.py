"""The page of a task certificate."""
