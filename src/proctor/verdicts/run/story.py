"""A run in words: its headline, its warnings, and how its trials are grouped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.model.canonical import canonical_json
from proctor.model.outcome import Outcome
from proctor.model.run import HOST_ROOT
from proctor.model.trial import RunStatus
from proctor.quantity import show, significant, span
from proctor.runfolder.read import RunData, TrialResult, metric_of, once
from proctor.verdicts.run.points import NOT_DISTINGUISHABLE, differ, ratio

NOISY = 0.10
"""Middle spread, as a fraction of the median, above which a point is called noisy."""
FEW = 6
_FIGURE = re.compile(r"\d[\d.,]*")
_ASIDE = re.compile(r" \([^()]*\)| over")
"""What a note says besides, which differs from trial to trial as figures do."""


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one experiment or task entry: what varies among them and what does not."""

    subject: str
    trials: tuple[TrialResult, ...]
    varying: tuple[str, ...]
    fixed: Mapping[str, Any]

    def label(self, trial: TrialResult) -> str:
        """What sets this trial apart from the others of its group."""
        if trial.planned.kind == "task":
            return trial.planned.label
        parts = [f"{name}={short(trial.planned.params.get(name))}" for name in self.varying]
        return ", ".join(parts) or self.subject


@once
def groups(data: RunData) -> tuple[Group, ...]:
    """Trials by the spec's body and subject, in plan order."""
    found: dict[tuple[int, str], list[TrialResult]] = {}
    for trial in data.trials:
        found.setdefault((trial.planned.body, trial.planned.subject), []).append(trial)
    return tuple(_group(subject, trials) for (_, subject), trials in found.items())


def _group(subject: str, trials: list[TrialResult]) -> Group:
    first = dict(trials[0].planned.params)
    varying: dict[str, None] = {}
    for trial in trials:
        params = trial.planned.params
        for name in params if params.keys() == first.keys() else {**first, **params}:
            if name not in varying and _differs(first, params, name):
                varying[name] = None
    ordered = tuple(sorted(varying, key=list(first).index if set(varying) <= set(first) else str))
    fixed = {name: value for name, value in first.items() if name not in varying}
    return Group(subject, tuple(trials), ordered, fixed)


def _differs(first: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    if (name in first) != (name in other):
        return True
    return bool(first[name] != other[name]) or type(first[name]) is not type(other[name])


def short(value: Any, limit: int = 40) -> str:
    """A parameter's value for a label."""
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, str):
        text = value
    else:
        text = canonical_json(value) if isinstance(value, dict | list | tuple) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@once
def headline(data: RunData) -> str:
    """One sentence: what was measured and what came out; before it, on what, if that is not usual."""
    return f"{HOST_ROOT.capitalize()}. {_sentence(data)}" if data.info.host_root else _sentence(data)


def _sentence(data: RunData) -> str:
    finished = len(data.finished)
    if not finished:
        return (
            f"Nothing of {data.info.name} has been measured yet: no trial of {len(data.trials)} has a result."
        )
    text = _measured(data) if data.info.kind == "experiment" else _rolled_out(data)
    if data.info.status in {RunStatus.INTERRUPTED, RunStatus.CANCELLED, RunStatus.RUNNING}:
        text += (
            f" The run is {data.info.status.value}: {finished} of {len(data.trials)} trials have a result."
        )
    elif finished < len(data.trials):
        text += f" {len(data.trials) - finished} of {len(data.trials)} trials have no result."
    return text


def _measured(data: RunData) -> str:
    metric = metric_of("experiment")
    ranked = sorted(
        ((value, trial) for trial in data.finished if (value := trial.stat(metric, "p50")) is not None),
        key=lambda pair: pair[0],
    )
    failed = [trial for trial in data.finished if trial.outcome is not Outcome.PASSED]
    names = list(dict.fromkeys(trial.planned.subject for trial in data.trials))
    what = (
        names[0]
        if len(names) == 1
        else f"{len(names)} experiments ({', '.join(names[:3])}{'…' * (len(names) > 3)})"
    )
    if not ranked:
        return f"{what} has no timing: {_ways(failed)}."
    if len(data.trials) == 1:
        return f"{what} takes {_one(ranked[0][1], metric)}.{_bad(failed)}"
    (low, fastest), (high, slowest) = ranked[0], ranked[-1]
    if len(names) > 1:
        text = f"{what} were measured at {len(data.trials)} points"
    else:
        text = f"{what} was measured at {len(data.trials)} parameter points"
    if len(ranked) > 1:
        text += (
            f": the median ranges from {show(metric, low)} ({_label(data, fastest)}) "
            f"to {show(metric, high)} ({_label(data, slowest)}){_times(slowest, fastest, metric)}"
        )
    else:
        text += f"; the one that succeeded takes {_one(fastest, metric)}"
    return f"{text}.{_bad(failed)}"


def _times(slowest: TrialResult, fastest: TrialResult, metric: str) -> str:
    """The ratio, where the intervals allow one."""
    found = ratio(slowest, fastest, metric)
    if found is not None:
        return f", {significant(found, 2)} times as long" if found >= 1.05 else ""
    overlap = differ(slowest, fastest) is False
    return f"; their 95 % intervals overlap: {NOT_DISTINGUISHABLE}" if overlap else ""


def _label(data: RunData, trial: TrialResult) -> str:
    return next(group.label(trial) for group in groups(data) if any(each is trial for each in group.trials))


def _one(trial: TrialResult, metric: str) -> str:
    count = int(trial.stat(metric, "count") or 1)
    text = f"{show(metric, trial.stat(metric, 'p50'))} per call (median of {count})"
    if count == 1:
        text = f"{show(metric, trial.stat(metric, 'p50'))} (one iteration)"
    if trial.interval:
        text += f", 95 % interval {span(metric, *trial.interval)}"
    return text


def _ways(failed: list[TrialResult]) -> str:
    ways = Counter(trial.outcome.value for trial in failed if trial.outcome)
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ways.most_common()) or "no result"


def _bad(failed: list[TrialResult]) -> str:
    return f" Not every point succeeded: {_ways(failed)}." if failed else ""


def _rolled_out(data: RunData) -> str:
    from proctor.verdicts.rollouts.scores import rollouts
    from proctor.verdicts.rollouts.words import headline as said

    return said(rollouts(data))


@once
def warnings(data: RunData) -> list[str]:
    """What a reader must know before quoting a number, each with how many trials it touches."""
    found = list(data.warnings)
    noise = data.info.environment.get("warnings", ())
    if isinstance(noise, list | tuple):
        found += [str(each) for each in noise]
    found += _notes(data.finished)
    if data.info.kind == "experiment":
        found += _spread(data.finished)
    else:
        found += _of_rollouts(data)
    retried = sum(1 for trial in data.trials if len(trial.attempts) > 1)
    if retried:
        found.append(
            f"{retried} of {len(data.trials)} trials needed more than one attempt; every attempt is kept"
        )
    return list(dict.fromkeys(found))


def _of_rollouts(data: RunData) -> list[str]:
    from proctor.verdicts.rollouts.scores import rollouts
    from proctor.verdicts.rollouts.words import warnings as said

    return said(rollouts(data))


def _notes(trials: list[TrialResult]) -> list[str]:
    """What attempts noted, each once: of notes that differ in figures only the commonest is told."""
    alike: dict[str, Counter[str]] = {}
    for notes, count in Counter(trial.counted.notes for trial in trials if trial.counted).items():
        for note in dict.fromkeys(notes):
            if note.startswith("host-root"):
                continue  # the headline says it
            alike.setdefault(_FIGURE.sub("#", _ASIDE.sub("", note)), Counter())[note] += count
    found = []
    for variants in sorted(alike.values(), key=lambda each: -each.total())[:20]:
        text = variants.most_common(1)[0][0]
        if len(trials) > 1:
            differ = ", with different numbers" if len(variants) > 1 else ""
            text += f" ({variants.total()} of {len(trials)} trials{differ})"
        found.append(text)
    return found


def _spread(trials: list[TrialResult]) -> list[str]:
    metric = metric_of("experiment")
    noisy, few = 0, 0
    for trial in trials:
        count, middle, mad = (trial.stat(metric, name) for name in ("count", "p50", "mad"))
        few += count is not None and count < FEW
        noisy += bool(mad and middle and (count or 0) >= FEW and 1.4826 * mad / middle > NOISY)
    found = []
    if noisy:
        found.append(
            f"noisy: at {noisy} of {len(trials)} points the middle of the values spreads by over ±{NOISY:.0%}"
        )
    if few:
        found.append(
            f"at {few} of {len(trials)} points there are fewer than {FEW} iterations: too few for an interval"
        )
    return found
