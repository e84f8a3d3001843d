"""The truth about runs, trials and attempts; blobs beside it."""
