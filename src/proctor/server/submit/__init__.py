"""From a request to a run: which specs are allowed, where their tasks are, and what they would cost."""
