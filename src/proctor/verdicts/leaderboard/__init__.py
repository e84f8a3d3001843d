"""Who is ahead of whom, over chosen runs."""
