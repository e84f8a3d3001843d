"""What a run of the performance harness says."""
