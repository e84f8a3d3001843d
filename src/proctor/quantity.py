"""Numbers as people read them: three digits and the unit that fits. The metric's name says what it is."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = "–"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit to show values in: shown = value × factor."""

    symbol: str
    factor: float = 1.0

    def show(self, value: float | None, *, digits: int = 3) -> str:
        """The value with its unit."""
        if value is None or not math.isfinite(value):
            return MISSING
        text = significant(value * self.factor, digits)
        if self.symbol == "$":
            return f"${text}"
        return f"{text} {self.symbol}" if self.symbol else text

    def span(self, low: float, high: float) -> str:
        """Two values with the unit once, and as many digits as it takes to tell them apart."""
        for digits in (3, 4, 5, 6):
            first, last = significant(low * self.factor, digits), significant(high * self.factor, digits)
            if first != last or low == high:
                break
        if self.symbol == "$":
            return f"${first} – ${last}"
        return f"{first} – {last} {self.symbol}".rstrip()


_Table = tuple[tuple[float, Unit], ...]
"""The smallest value for which a unit is used, the largest unit first."""
_SECONDS: _Table = (
    (1.0, Unit("s")),
    (1e-3, Unit("ms", 1e3)),
    (1e-6, Unit("µs", 1e6)),
    (0.0, Unit("ns", 1e9)),
)
_TIMES: _Table = ((7200.0, Unit("h", 1 / 3600)), (120.0, Unit("min", 1 / 60)), *_SECONDS)
_BYTES: _Table = (
    (2.0**30, Unit("GiB", 2.0**-30)),
    (2.0**20, Unit("MiB", 2.0**-20)),
    (2.0**10, Unit("KiB", 2.0**-10)),
    (0.0, Unit("B")),
)
_PLAIN: _Table = ((1e9, Unit("G", 1e-9)), (1e6, Unit("M", 1e-6)), (1e4, Unit("k", 1e-3)), (0.0, Unit("")))
_PER = re.compile(r"_per_([a-z]+)(?=$|_p\d+$|_mean$|_median$|_min$|_max$)")
_SECOND = ("s", "sec", "second")
_TIME_SUFFIXES = {"_s": 1.0, "_seconds": 1.0, "_sec": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}


def unit_for(metric: str, values: Sequence[float]) -> Unit:
    """The unit in which the largest of these values reads well."""
    size = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    name = metric.lower()
    if match := _PER.search(name):
        unit = unit_for(name[: match.start()], [size])
        per = "s" if match[1] in _SECOND else match[1].replace("_", " ")
        return unit if unit.symbol == "$" else Unit(f"{unit.symbol}/{per}", unit.factor)
    if name.endswith("_bytes"):
        return _pick(_BYTES, size)
    if name.endswith("_usd"):
        return Unit("$")
    if name.endswith(("_pct", "_percent")):
        return Unit("%")
    for suffix, base in _TIME_SUFFIXES.items():
        if name.endswith(suffix):
            unit = _pick(_TIMES, size * base) if size else Unit("s")
            return Unit(unit.symbol, unit.factor * base)
    return _pick(_PLAIN, size)


def is_rate(metric: str) -> bool:
    """Whether a metric counts something per second."""
    match = _PER.search(metric.lower())
    return match is not None and match[1] in _SECOND


def is_time_unit(metric: str) -> bool:
    """Whether a metric's name ends with a unit of time."""
    name = metric.lower()
    return name.endswith(tuple(_TIME_SUFFIXES)) and not is_rate(name)


def _pick(table: _Table, size: float) -> Unit:
    return next(unit for limit, unit in table if size >= limit)


def show(metric: str, value: float | None) -> str:
    """One value of a metric, in the unit that fits it alone."""
    if value is None or not math.isfinite(value):
        return MISSING
    return unit_for(metric, [value]).show(value)


def span(metric: str, low: float, high: float) -> str:
    """From one value to another: in one unit, or each in its own when they lie far apart."""
    unit = unit_for(metric, [low or high])
    if abs(high * unit.factor) >= 1000:
        return f"{show(metric, low)} – {show(metric, high)}"
    return unit.span(low, high)


def significant(value: float, digits: int = 3) -> str:
    """Rounded to this many digits, never in exponents between 1e-4 and 1e9, thousands set apart."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits - 1}e}"
    whole = math.floor(math.log10(abs(value))) + 1
    rounded = round(value, digits - whole)
    if math.floor(math.log10(abs(rounded))) + 1 > whole:
        whole += 1
    text = f"{rounded:,.{max(0, digits - whole)}f}"
    return text.replace(",", "\u202f")


def decimals(value: float, least: int, around: float = 0.0) -> int:
    """Digits after the point, `least` or as many as it takes not to read as `around` what is not."""
    if value == around or not math.isfinite(value):
        return least
    return next((count for count in range(least, 9) if float(f"{value:.{count}f}") != around), 9)


def confidence(level: float) -> str:
    """The level of an interval, never rounded up to certainty: `95 %`, `99.62 %`."""
    beside = 100 * (1 - level)
    digits = max(1, 1 - math.floor(math.log10(beside))) if beside > 0 else 0
    text = f"{100 * level:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def number(value: object) -> float | None:
    """A finite float, or nothing: what charts and tables may count on. True and false are no numbers."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def duration(seconds: float | None) -> str:
    """How long something took, as people say it."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return _pick(_TIMES, abs(seconds)).show(seconds) if seconds else "0 s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def moment(at: float | None) -> str:
    """A point in time, the same wherever it is read."""
    if at is None or not 0 <= at < 253402300800:
        return MISSING
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def metric_title(metric: str) -> str:
    """A metric's name as a heading: `duration_s` is a duration."""
    base = metric
    for suffix in (*_TIME_SUFFIXES, "_bytes", "_usd", "_pct"):
        if metric.endswith(suffix) and not is_rate(metric) and len(metric) > len(suffix):
            base = metric[: -len(suffix)]
            break
    return base.replace("_", " ")


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def some(names: Sequence[str], most: int) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
