"""A history in words: the verdict first, what was tested, what was left out, and what would change it."""

from __future__ import annotations

import time

from proctor.analysis.claim import tasks_needed
from proctor.quantity import MISSING, metric_title, plural, show, significant, some, span
from proctor.verdicts.history.detect import LEAST_RUNS
from proctor.verdicts.history.model import History, Line, Move, Ran, Value

_BARS = "▁▂▃▄▅▆▇█"
NAMES = {"pass_rate": "pass rate", "reward": "mean reward"}


def sentence(history: History) -> str:
    """The verdict, in one sentence."""
    what = f"{history.metric} of {history.name}"
    lines = history.main or list(history.lines)
    most = max((len(line.known) for line in lines), default=0)
    if not most:
        return f"{what}: none of {plural(len(history.runs), 'run')} has a usable value."
    if most < LEAST_RUNS:
        fewer = f"{most} of {len(history.runs)} runs have" if most > 1 else "one run has"
        return (
            f"{what}: {fewer} a value, too few to detect changes (at least {LEAST_RUNS} are needed); "
            f"the newest is {_newest(lines[0])}."
        )
    moved = [line for line in lines if line.moves]
    if moved:
        return f"{what}: {_moved(moved, lines, history)}."
    others = [line for line in history.lines if line.moves and line not in lines]
    text = f"{what}: no lasting change in {most} runs{_alternating(lines) or _noise(lines[0])}"
    if others:
        far = _farthest(others)
        move = _largest(far)
        text += (
            f"; {len(others)} of {len(history.lines) - len(lines)} single lines changed, {far.name} most: "
            f"{change_text(far, move)} {_where(history, move)}"
        )
    return f"{text}."


def _moved(moved: list[Line], lines: list[Line], history: History) -> str:
    if len(lines) == 1 or len(moved) == 1:
        line = moved[0]
        name = f" of {line.name}" if len(lines) > 1 else ""
        if len(line.moves) == 1:
            return f"one change{name}, {change_text(line, line.moves[0])} {_where(history, line.moves[0])}"
        newest = line.moves[-1]
        moved_by = f"{change_text(line, newest)} {_where(history, newest)}"
        return f"{len(line.moves)} changes{name}, the newest {moved_by}"
    far = _farthest(moved)
    move = _largest(far)
    return (
        f"{len(moved)} of {len(lines)} lines changed, {far.name} most: "
        f"{change_text(far, move)} {_where(history, move)}"
    )


def _farthest(lines: list[Line]) -> Line:
    return max(lines, key=lambda line: abs(_largest(line).change))


def _largest(line: Line) -> Move:
    return max(line.moves, key=lambda move: abs(move.change))


def _where(history: History, move: Move) -> str:
    at, last = history.runs[move.at], history.runs[move.last]
    commit = f", commit {at.version}" if at.version else ""
    return f"at run {at.id}{commit}, between {_moment(last)} and {_moment(at)}"


def _moment(run: Ran) -> str:
    return f"{date_text(run.at)}{f' ({run.version})' if run.version else ''}"


def _newest(line: Line) -> str:
    latest = line.latest
    return value_text(line, latest) if latest else MISSING


def _noise(line: Line) -> str:
    if line.noise is None:
        return ""
    return f" (runs differ by about ±{_size(line, line.noise)} by chance)"


def _alternating(lines: list[Line]) -> str:
    """That a line goes back and forth between two levels, as on a machine with two speeds."""
    line = next((each for each in lines if each.alternating), None)
    if line is None or line.alternating is None:
        return ""
    found = line.alternating
    levels = [value_text(line, Value(value=level)) for level in (found.low, found.high)]
    name = f" of {line.name}" if len(lines) > 1 else ""
    return f", but the values{name} switched {found.switches} times between {levels[0]} and {levels[1]}"


def change_text(line: Line, move: Move) -> str:
    """How far it moved: `+12 %`, or `-8 pp` for shares."""
    return f"{'+' if move.change >= 0 else '-'}{_size(line, abs(move.change))}"


def change_span(line: Line, move: Move) -> str:
    """The interval of the change."""
    unit = "pp" if line.is_share else "%"
    return f"{100 * move.low:+.3g} to {100 * move.high:+.3g} {unit}"


def _size(line: Line, size: float) -> str:
    text = significant(100 * size, 2) if size >= 0.001 else "0.1"
    return f"{text} {'pp' if line.is_share else '%'}"


def value_text(line: Line, value: Value | None) -> str:
    """A value as people read it."""
    if value is None:
        return MISSING
    return f"{100 * value.value:.1f} %" if line.is_share else show(line.metric, value.value)


def interval_text(line: Line, value: Value | None) -> str:
    """The ends of its interval."""
    if value is None or value.low is None or value.high is None:
        return MISSING
    if line.is_share:
        return f"{100 * value.low:.0f} – {100 * value.high:.0f} %"
    return span(line.metric, value.low, value.high)


def line_title(history: History, line: Line, name: str = "") -> str:
    """What a line shows, in words. `name`: a shorter one than the line's own."""
    metric = NAMES.get(line.metric, metric_title(line.metric))
    if history.kind == "task" and line.metric not in NAMES:
        metric = f"mean {metric} of a rollout"
    return f"{name or line.name}: {metric}"


def sparkline(line: Line) -> str:
    """A character per run: a bar by size, a gap where there is no value, `|` where the level changed."""
    known = [value.value for value in line.values if value is not None]
    if not known:
        return ""
    low, high = (min(known), max(known)) if not line.is_share else (min(0.0, *known), max(1.0, *known))
    # A tenth of the level fills the height at least: noise must not look like mountains.
    reach = max(high - low, 0.1 * abs(high)) or 1.0
    moved = {move.at for move in line.moves}
    text = ""
    for at, value in enumerate(line.values):
        text += "|" if at in moved else ""
        text += "·" if value is None else _BARS[min(7, int(8 * (value.value - low) / reach))]
    return text


def captions(history: History) -> list[str]:
    """What was tested, on how much, and what would change the verdict."""
    counted = len(history.counted)
    line = next(iter(history.main or history.lines), None)
    said = [f"{plural(len(history.runs), 'run')}, {counted} in the statistics."]
    if history.kind == "task":
        said.append(
            f"Intervals: 95 %, for tasks like these; of fewer than {tasks_needed()} tasks, and of a single "
            "one, for these tasks. Errors not caused by the agent are left out."
        )
    else:
        said.append(
            "Values: the median over a run's iterations with its 95 % interval, which does not include "
            "run-to-run noise."
        )
    if line and len(line.known) >= LEAST_RUNS:
        said.append(
            "Changes: PELT on winsorised medians, at least four runs at each level, allowing for values that "
            "depend on the runs before; fewer than 5 of 100 unchanged histories show one by chance. "
            "Changes of less than 1 % are not reported."
        )
        if any(each.alternating for each in history.main or history.lines):
            said.append(
                "Values that go back and forth between two levels are not reported as changes: a machine "
                "with two speeds looks like this. Compare versions on it with proctor ab."
            )
        said.append(
            "What would change it: four more runs at another level, or runs of versions between the two "
            "named above."
        )
    else:
        need = LEAST_RUNS - (len(line.known) if line else 0)
        said.append(f"What would change it: {plural(need, 'more run')}.")
    return said


def left_out(history: History) -> list[str]:
    """The runs that are shown and not counted, each reason once."""
    reasons: dict[str, list[str]] = {}
    for run in history.runs:
        if run.left_out:
            reasons.setdefault(run.left_out, []).append(run.id)
    return [f"left out of the statistics: {some(ids, 3)}: {reason}" for reason, ids in reasons.items()]


def differences(history: History) -> list[str]:
    """Where the machine, Python or the tasks changed on the way."""
    return [f"at run {run.id}: {run.differs}" for run in history.runs if run.differs]


def date_text(at: float) -> str:
    """A moment, the same wherever it is read."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) if 0 <= at < 253402300800 else MISSING
