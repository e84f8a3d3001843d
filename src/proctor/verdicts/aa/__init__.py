"""The noise certificate: how often a suite gives false alarms, what it can detect, and what that costs."""
