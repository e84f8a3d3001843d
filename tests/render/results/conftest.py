"""Rollouts that never happened, for every test here."""

from tests.made_rollouts import rolled

__all__ = ["rolled"]
