"""Differences between two sequences, with a bound on the work.

`difflib` is quadratic on repetitive lines, and on many small changes: a file of an agent could keep a
processor busy for hours. Here every step is counted, and what would go beyond the bound is shown as
replaced as a whole: longer than necessary, and right all the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate

STEPS = 3_000_000
"""A few tenths of a second."""


class Effort:
    """How many steps may still be made, over all sequences that are compared with it."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def take(self, steps: int) -> bool:
        """Whether so many are left; then they are used."""
        if steps > self.left:
            return False
        self.left -= steps
        return True


class BoundedMatcher(SequenceMatcher[Hashable]):
    """A `SequenceMatcher` that finds no more matches when its effort is spent."""

    a: Sequence[Hashable]
    b: Sequence[Hashable]
    b2j: Mapping[Hashable, Sequence[int]]
    """Where each item of `b` is."""

    def __init__(
        self, a: Sequence[Hashable], b: Sequence[Hashable], effort: Effort, *, autojunk: bool = True
    ) -> None:
        self._effort = effort
        begin = _same(a, b)
        end = _same(a[begin:][::-1], b[begin:][::-1])
        middle_a, middle_b = a[begin : len(a) - end], b[begin : len(b) - end]
        self._ends = begin, end, len(a), len(b)
        if not effort.take(len(middle_a) + len(middle_b)):
            middle_b = ()  # nothing to match with
        super().__init__(None, middle_a, middle_b, autojunk=autojunk)
        positions = self.b2j
        self._costs = [0, *accumulate(1 + len(positions.get(each, ())) for each in middle_a)]
        """How many steps a search looks at before each place of `a`."""

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """The longest match of a part, or none."""
        ahi = len(self.a) if ahi is None else ahi
        bhi = len(self.b) if bhi is None else bhi
        if blo == bhi or not self._effort.take(self._costs[ahi] - self._costs[alo]):
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)

    def get_matching_blocks(self) -> list[Match]:
        """Those of the whole: what both begin and end with is compared once, and costs nothing."""
        begin, end, length_a, length_b = self._ends
        *inner, _ = super().get_matching_blocks()
        found = [Match(0, 0, begin)] if begin else []
        found += [Match(begin + a, begin + b, size) for a, b, size in inner]
        if end:
            found.append(Match(length_a - end, length_b - end, end))
        return [*_joined(found), Match(length_a, length_b, 0)]


def unified_diff(
    old: Sequence[str],
    new: Sequence[str],
    names: tuple[str, str],
    *,
    effort: Effort | None = None,
    context: int = 3,
    end: str = "\n",
) -> Iterator[str]:
    """As `difflib.unified_diff` without dates; nothing for equal sequences."""
    matcher = BoundedMatcher(old, new, effort or Effort())
    groups = matcher.get_grouped_opcodes(context)
    for number, group in enumerate(groups):
        if not number:
            yield f"--- {names[0]}{end}"
            yield f"+++ {names[1]}{end}"
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@{end}"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[i1:i2])
                continue
            yield from (f"-{line}" for line in old[i1:i2])
            yield from (f"+{line}" for line in new[j1:j2])


def _same(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """How many items two sequences begin with alike."""
    for at, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return at
    return min(len(a), len(b))


def _joined(matches: Sequence[Match]) -> list[Match]:
    """Matches that follow each other without a gap as one."""
    found: list[Match] = []
    for match in matches:
        last = found[-1] if found else None
        if last and (last.a + last.size, last.b + last.size) == (match.a, match.b):
            found[-1] = Match(last.a, last.b, last.size + match.size)
        else:
            found.append(match)
    return found


def _range(start: int, stop: int) -> str:
    """Lines of a hunk as patches count them: from 1, and from the line before where there are none."""
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"
