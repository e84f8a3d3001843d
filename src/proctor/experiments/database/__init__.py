"""Experiments on SQLite: pragmas, where a log is kept, and where its time goes."""
