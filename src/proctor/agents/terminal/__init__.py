"""The built-in agent: a model and a shell that stays. One file per part; `agent` has the loop."""
