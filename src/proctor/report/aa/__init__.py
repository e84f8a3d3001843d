"""The noise certificate: how often a suite cries wolf, what it can detect, and what that costs."""
