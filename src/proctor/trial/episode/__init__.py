"""Episodes: an agent and an environment, each in a sandbox of its own, that take turns."""
