"""Rules over one run, or over a run and its baseline, that give a verdict and an exit code."""
