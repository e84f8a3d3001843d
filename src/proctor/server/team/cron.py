"""When a schedule is due: five fields of cron in a time zone, or `daily 02:00` and `weekly mon 02:00`. Pure.

A time that the clock skips in spring is an hour later that day; one that it has twice in autumn is the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proctor.errors import UsageError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_PLAIN = re.compile(r"(?:daily|weekly (?P<day>[a-z]{3})[a-z]*) (?P<hour>\d{1,2}):(?P<minute>\d{2})")
_FAR_DAYS = 366 * 5
"""29 February comes within this time."""
_HOW = "write five fields (minute hour day month weekday) such as '0 2 * * *', or 'daily 02:00'"


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes at which something is due."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Whether day and weekday are both named: then one of them is enough, as with cron."""

    def on(self, day: date) -> bool:
        """Whether it is due on a day at all."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.either else by_day and by_weekday

    def next(self, after: float, zone: ZoneInfo) -> float | None:
        """The first moment after another one, in UNIX seconds; None when there is none for years."""
        day = datetime.fromtimestamp(after, zone).date()
        for _ in range(_FAR_DAYS):
            if self.on(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                        moment = at.astimezone(UTC).timestamp()
                        if moment > after:
                            return moment
            day += timedelta(days=1)
        return None


def parse_cron(text: str) -> Cron:
    """The minutes that a text means; UsageError says which part is wrong."""
    given = " ".join(text.lower().split())
    fields = _WORDS.get(given, _plain(given)).split()
    if len(fields) != len(_FIELDS):
        raise UsageError(f"'{text[:60]}' is not a time of a schedule: {_HOW}")
    sets = [_values(each, *about) for each, about in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = sets
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(each % 7 for each in weekdays),
        either,
    )


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its name; UsageError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"'{name[:60]}' is not a time zone; write one such as UTC or Europe/Berlin"
        ) from None


def missed(cron: Cron, zone: ZoneInfo, since: float, until: float, most: int = 1000) -> int:
    """How often it was due from a moment on, that one included."""
    count, at = 0, since
    while at <= until and count < most:
        count += 1
        found = cron.next(at, zone)
        if found is None:
            break
        at = found
    return count


def _plain(text: str) -> str:
    found = _PLAIN.fullmatch(text)
    if not found:
        return text
    day = found["day"] or "*"
    return f"{int(found['minute'])} {int(found['hour'])} * * {day}"


def _values(text: str, name: str, low: int, high: int, words: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = _number(first, name, words, low)
            end = _number(last, name, words, low) if dash else (high if slash else begin)
        every = _number(step, name, (), 0) if slash else 1
        if not low <= begin <= end <= high or every < 1:
            raise UsageError(f"{name} '{part[:40]}': expected numbers from {low} to {high}; {_HOW}")
        found |= set(range(begin, end + 1, every))
    return found


def _number(text: str, name: str, words: tuple[str, ...], low: int) -> int:
    if text[:3] in words:
        return words.index(text[:3]) + (low if words is _MONTHS else 0)
    if not text.isdecimal() or len(text) > 4:
        raise UsageError(f"{name} '{text[:40]}' is not a number; {_HOW}")
    return int(text)
