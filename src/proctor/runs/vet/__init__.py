"""Test tasks before they are used: the author's solution, no solution, and disturbances."""
