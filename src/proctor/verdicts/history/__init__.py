"""One series of runs over time: what was measured, its lasting changes, and what was left out."""
