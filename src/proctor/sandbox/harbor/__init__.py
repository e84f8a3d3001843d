"""Harbor beside Proctor: its agents in our sandboxes, and its environments as sandboxes of ours."""
