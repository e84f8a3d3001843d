"""Which claim a score makes: about these tasks, or about tasks like these. Chosen by the design alone."""

from __future__ import annotations

import math
from enum import StrEnum

from proctor.quantity import plural

FEW_TASKS = 10
"""Below this many tasks the exact permutation test decides; from here on the t test does."""


class Claim(StrEnum):
    """What an interval and a verdict are about."""

    TASKS_LIKE_THESE = "tasks like these"
    """The tasks are a sample: what would other tasks of the same kind give?"""
    THESE_TASKS = "these tasks"
    """The tasks are fixed: what would new rollouts of them give?"""


def tasks_needed(level: float = 0.95) -> int:
    """The fewest tasks with which any difference can be certain for tasks like these.

    With fewer, even if every task moved the same way, that pattern of signs is too likely by chance.
    """
    return min(math.ceil(1 - math.log2(1 - level)), FEW_TASKS)


def widest_claim(tasks: int, level: float = 0.95) -> Claim:
    """The widest claim that this many tasks can judge. What the tasks scored has no say in it."""
    return Claim.TASKS_LIKE_THESE if tasks >= tasks_needed(level) else Claim.THESE_TASKS


def chosen_claim(these_tasks: bool | None, tasks: int, level: float = 0.95) -> Claim:
    """The claim that was asked for, or the widest that can be judged where nobody asked."""
    if these_tasks is None:
        return widest_claim(tasks, level)
    return Claim.THESE_TASKS if these_tasks else Claim.TASKS_LIKE_THESE


def too_few(tasks: int, level: float = 0.95) -> str:
    """Why tasks like these cannot be judged; empty when they can."""
    needed = tasks_needed(level)
    if tasks >= needed:
        return ""
    return (
        f"{plural(tasks, 'task')} cannot prove any difference for tasks like these at {100 * level:g} %; "
        f"at least {needed} tasks are needed"
    )
