"""`report.html`: a single file that opens from disk without other files or network access."""
