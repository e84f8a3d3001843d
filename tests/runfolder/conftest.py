"""Runs that never happened, for every test here."""

from tests.made_runs import any_run, runs

__all__ = ["any_run", "runs"]
