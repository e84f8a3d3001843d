"""The database of runs, trials and attempts, and the store of blobs."""
