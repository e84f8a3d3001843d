"""The keeper: a small program that makes sandboxes and is PID 1 in each; source, build and client."""
