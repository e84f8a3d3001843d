"""From a spec to the trials that will run."""
