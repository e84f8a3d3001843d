"""What the reading routes show, worked out from the store: rows of runs, matrices, transcripts, streams."""
