"""Pages and files of rollouts."""
