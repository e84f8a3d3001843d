"""`report.html`: one file that opens from disk and asks no other file or host for anything."""
