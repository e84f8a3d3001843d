"""Differences within a bound on the work."""

from __future__ import annotations

import difflib
import random

import pytest

from proctor.bounded_diff import BoundedMatcher, Effort, unified_diff


def applied(old: list[str], patch: list[str]) -> list[str]:
    """The old lines with a unified diff applied."""
    new, at = [], 0
    for line in patch[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            begin = int(start) - (count != "0")
            new += old[at:begin]
            at = begin
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            if line[0] == " ":
                new.append(line[1:])
            at += 1
    return new + old[at:]


@pytest.mark.parametrize("steps", [0, 30, 300, 1_000_000])
def test_a_patch_is_right_however_little_was_compared(steps):
    chance = random.Random(steps)
    for _ in range(100):
        old = [chance.choice("abcdef") + "\n" for _ in range(chance.randrange(30))]
        new = [line for line in old if chance.random() > 0.2] + ["end\n"] * chance.randrange(2)
        assert applied(old, list(unified_diff(old, new, ("old", "new"), effort=Effort(steps)))) == new


def test_ordinary_patches_are_those_of_difflib():
    chance = random.Random(1)
    for _ in range(50):
        old = [f"{chance.randrange(60)}\n" for _ in range(80)]
        new = list(old)
        for _ in range(5):
            new[chance.randrange(80)] = "new\n"
        assert list(unified_diff(old, new, ("a", "b"))) == list(difflib.unified_diff(old, new, "a", "b"))


def test_the_work_is_bounded_over_all_that_is_compared():
    old, new = ([f"{at * step % 150}\n" for at in range(20_000)] for step in (1, 7))
    effort = Effort(100_000)
    for _ in range(3):
        BoundedMatcher(old, new, effort).get_matching_blocks()
    assert 0 <= effort.left < 100_000


def test_a_small_change_of_a_large_repetitive_file_is_shown_as_small():
    old = ["same\n"] * 200_000
    new = [*old[:100_000], "other\n", *old[100_000:]]
    changed = [line for line in unified_diff(old, new, ("a", "b"), effort=Effort(10)) if line[0] in "+-"]
    assert changed == ["--- a\n", "+++ b\n", "+other\n"]
