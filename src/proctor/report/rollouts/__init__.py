"""What is said of agents on tasks: numbers, pictures, and the documented rollout folder."""
