"""One series of runs over time: what was measured, where it moved for good, and what was left out."""
