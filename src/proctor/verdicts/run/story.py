"""A run in words: its headline, its warnings, the numbers of a point, and whether two points differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proctor.analysis.clock import CPU, HeadlineClock, clock_sentence
from proctor.model.outcome import Outcome
from proctor.model.run import HOST_ROOT, RunInfo
from proctor.model.trial import RunStatus
from proctor.quantity import MISSING, plural, show, significant, span
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.run.survey import FEW, NOISY, Survey, once, run_clock, survey

NOT_DISTINGUISHABLE = "not distinguishable"
NO_INTERVAL = "no interval"
HEADERS = ("median", "95 % interval", "mean", "p95", "n")
_FIGURE = re.compile(r"\d[\d.,]*")
_ASIDE = re.compile(r" \([^()]*\)| over")
"""What a note says besides, which differs from trial to trial as figures do."""


@dataclass(frozen=True, slots=True)
class PointNumbers:
    """One point in words."""

    outcome: str
    median: str
    interval: str
    """Of the median, 95 %."""
    half: float | None
    """Half of the interval as a share of the median."""
    mean: str
    p95: str
    n: str

    @property
    def cells(self) -> list[str]:
        """The numbers in the order of `HEADERS`."""
        return [self.median, self.interval, self.mean, self.p95, self.n]


def numbers(trial: TrialResult, metric: str) -> PointNumbers:
    """What one point came to."""
    outcome = trial.outcome.value if trial.outcome else "no result"
    middle = trial.stat(metric, "p50")
    if middle is None:
        reward = trial.counted.reward if trial.counted else None
        return PointNumbers(outcome, show(metric, reward), MISSING, None, MISSING, MISSING, MISSING)
    ends = trial.interval_of(metric)
    return PointNumbers(
        outcome=outcome,
        median=show(metric, middle),
        interval=span(metric, *ends) if ends else MISSING,
        half=(ends[1] - ends[0]) / 2 / middle if ends and middle else None,
        mean=show(metric, trial.stat(metric, "mean")),
        p95=show(metric, trial.stat(metric, "p95")),
        n=str(int(trial.stat(metric, "count") or 1)),
    )


def differ(one: TrialResult, other: TrialResult, metric: str) -> bool | None:
    """Whether the intervals of two medians lie apart; None when one of them has no interval."""
    first, second = one.interval_of(metric), other.interval_of(metric)
    if first is None or second is None:
        return None
    return first[1] < second[0] or second[1] < first[0]


def ratio(slow: TrialResult, fast: TrialResult, metric: str) -> float | None:
    """How many times as long one takes as the other; None unless their intervals lie apart."""
    above, below = slow.stat(metric, "p50"), fast.stat(metric, "p50")
    if above is None or not below or not differ(slow, fast, metric):
        return None
    return above / below


def ratio_text(trial: TrialResult, best: TrialResult, metric: str) -> str:
    """A point against the fastest one, or why no ratio is given."""
    if trial.stat(metric, "p50") is None:
        return MISSING
    if trial.planned.index == best.planned.index:
        return "the fastest"
    found = ratio(trial, best, metric)
    if found is not None:
        return f"{found:.2f}×"
    return NO_INTERVAL if differ(trial, best, metric) is None else NOT_DISTINGUISHABLE


@once
def headline(data: RunData) -> str:
    """One sentence: what was measured and what came out; before it, on what, if that is not usual."""
    seen = survey(data)

    def said() -> str:
        if data.info.kind == "experiment":
            return _measured(data, seen)
        from proctor.verdicts.rollouts.scores import rollouts
        from proctor.verdicts.rollouts.words import headline as said_of

        return said_of(rollouts(data))

    finished = seen.finished - seen.outcomes[Outcome.CANCELLED]
    return sentence(data.info, said, finished=finished, total=seen.total)


def sentence(info: RunInfo, said: Callable[[], str], *, finished: int, total: int) -> str:
    """What was said of the results, with how far the run has come and on what it was made."""
    host = f"{HOST_ROOT.capitalize()}. " if info.host_root else ""
    if not finished:
        if info.status is RunStatus.CANCELLED:
            return f"{host}{info.name} was cancelled before any of its {plural(total, 'trial')} had a result."
        return f"{host}Nothing of {info.name} has been measured yet: no trial of {total} has a result."
    text = host + said()
    if info.status in {RunStatus.INTERRUPTED, RunStatus.CANCELLED, RunStatus.RUNNING}:
        text += f" The run is {info.status.value}: {finished} of {total} trials have a result."
    elif finished < total:
        text += f" {total - finished} of {total} trials have no result."
    return text


def _measured(data: RunData, seen: Survey) -> str:
    clock = run_clock(data)
    metric, of_cpu = clock.metric, " of CPU time" if clock.metric == CPU else ""
    failed = seen.outcomes.copy()
    del failed[Outcome.PASSED]
    names = list(dict.fromkeys(group.subject for group in seen.groups))
    several = f"{len(names)} experiments ({', '.join(names[:3])}{'…' * (len(names) > 3)})"
    what = names[0] if len(names) == 1 else several
    ends = seen.ranked()
    if not ends:
        return f"{what} has no timing: {_ways(failed)}."
    fastest = data.trials[ends[0][1]]
    if seen.total == 1:
        return f"{what} takes {_one(fastest, metric)}.{_bad(failed)}{_judged(clock)}"
    if len(names) > 1:
        text = f"{what} were measured at {seen.total} points"
    else:
        text = f"{what} was measured at {seen.total} parameter points"
    if len(ends) > 1:
        slowest = data.trials[ends[1][1]]
        text += (
            f": the median{of_cpu} ranges from {show(metric, ends[0][0])} "
            f"({_label(seen, ends[0][1], fastest)}) "
            f"to {show(metric, ends[1][0])} ({_label(seen, ends[1][1], slowest)})"
            f"{_times(slowest, fastest, metric)}"
        )
    else:
        text += f"; the one that succeeded takes {_one(fastest, metric)}"
    return f"{text}.{_bad(failed)}{_judged(clock)}"


def _judged(clock: HeadlineClock) -> str:
    return f" {clock_sentence(clock)}" if clock.metric == CPU else ""


def _times(slowest: TrialResult, fastest: TrialResult, metric: str) -> str:
    """The ratio, where the intervals allow one."""
    found = ratio(slowest, fastest, metric)
    if found is not None:
        return f", {significant(found, 2)} times as long" if found >= 1.05 else ""
    overlap = differ(slowest, fastest, metric) is False
    return f"; their 95 % intervals overlap: {NOT_DISTINGUISHABLE}" if overlap else ""


def _label(seen: Survey, place: int, trial: TrialResult) -> str:
    return seen.group_of(place).label(trial)


def _one(trial: TrialResult, metric: str) -> str:
    count = int(trial.stat(metric, "count") or 1)
    text = show(metric, trial.stat(metric, "p50")) + (" of CPU time" if metric == CPU else "")
    text += f" per call (median of {count})" if count > 1 else " (one iteration)"
    if ends := trial.interval_of(metric):
        text += f", 95 % interval {span(metric, *ends)}"
    return text


def _ways(failed: Mapping[Outcome, int]) -> str:
    ways = Counter(failed).most_common()
    return ", ".join(f"{count} {each.value.replace('_', ' ')}" for each, count in ways) or "no result"


def _bad(failed: Mapping[Outcome, int]) -> str:
    return f" Not every point succeeded: {_ways(failed)}." if failed else ""


@once
def warnings(data: RunData) -> list[str]:
    """What a reader must know before quoting a number, each with how many trials it touches."""
    seen = survey(data)
    found = list(data.warnings)
    noise = data.info.environment.get("warnings", ())
    if isinstance(noise, list | tuple):
        found += [str(each) for each in noise]
    found += _notes(seen)
    if data.info.kind == "experiment":
        clock = run_clock(data)
        found += [clock_sentence(clock)] if clock.why and clock.metric != CPU else []
        found += _spread(seen)
    else:
        from proctor.verdicts.rollouts.scores import rollouts
        from proctor.verdicts.rollouts.words import warnings as said

        found += said(rollouts(data), seen.suspects)
    if seen.retried:
        found.append(
            f"{seen.retried} of {seen.total} trials needed more than one attempt; every attempt is kept"
        )
    return list(dict.fromkeys(found))


def _notes(seen: Survey) -> list[str]:
    """What attempts noted, each once: of notes that differ in figures only the commonest is told."""
    alike: dict[str, Counter[str]] = {}
    for notes, count in seen.notes.items():
        for note in dict.fromkeys(notes):
            if note.startswith("host-root"):
                continue  # the headline says it
            alike.setdefault(_FIGURE.sub("#", _ASIDE.sub("", note)), Counter())[note] += count
    found = []
    for variants in sorted(alike.values(), key=lambda each: -each.total())[:20]:
        text = variants.most_common(1)[0][0]
        if seen.finished > 1:
            differ = ", with different numbers" if len(variants) > 1 else ""
            text += f" ({variants.total()} of {seen.finished} trials{differ})"
        found.append(text)
    return found


def _spread(seen: Survey) -> list[str]:
    found = []
    if seen.noisy:
        found.append(
            f"noisy: at {seen.noisy} of {seen.finished} points the middle of the values spreads by over "
            f"±{NOISY:.0%}"
        )
    if seen.few:
        found.append(
            f"at {seen.few} of {seen.finished} points there are fewer than {FEW} iterations: too few for an "
            "interval"
        )
    return found
