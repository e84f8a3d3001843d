"""Reports of agents on tasks: numbers, charts, and the documented rollout folder."""
