"""`summary.json` and `metrics.json`: the result of a run, and the aggregates of each trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor.model.arms import arm_of, shown_options
from proctor.model.record import SCHEMA_VERSION
from proctor.runfolder.files import encode, write_atomic, write_json
from proctor.runfolder.read import RunData, TrialResult, count_outcomes, metric_of
from proctor.runfolder.result import ResultWriter
from proctor.runfolder.write import run_fields
from proctor.verdicts.run.story import groups, headline, warnings


def summary(data: RunData) -> dict[str, Any]:
    """The run in a page: status, headline, outcomes, warnings and a line per subject."""
    info = data.info
    finished = len(data.finished)
    outcomes = count_outcomes(data.trials)
    blame: Counter[str] = Counter()
    for outcome, count in outcomes.items():
        blame[outcome.blame.value] += count
    attempts = sum(len(trial.attempts) for trial in data.trials)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run_fields(info),
        "host_root": info.host_root,
        "headline": headline(data),
        "metric": metric_of(info.kind),
        "wall_s": info.finished_at - info.started_at if info.finished_at and info.started_at else None,
        "trials": {
            "total": len(data.trials),
            "finished": finished,
            "missing": len(data.trials) - finished,
        },
        "attempts": {"total": attempts, "not_counted": attempts - finished},
        "outcomes": {outcome.value: count for outcome, count in outcomes.items()},
        "blame": dict(blame),
        "warnings": warnings(data),
        "subjects": [_subject(group.subject, group.trials, metric_of(info.kind)) for group in groups(data)],
    }
    if info.kind == "task":
        from proctor.verdicts.rollouts import document as rolled_out
        from proctor.verdicts.rollouts.images import images_of

        document["score"] = rolled_out.overview(data)
        document["arms"] = rolled_out.arms(data)
        document["suspects"] = sum(bool(trial.counted and trial.counted.suspect) for trial in data.trials)
        document["images"] = [each.to_mapping() for each in images_of(data)]
    return document


def _subject(subject: str, trials: tuple[TrialResult, ...], metric: str) -> dict[str, Any]:
    medians = [value for trial in trials if (value := trial.stat(metric, "p50")) is not None]
    return {
        "subject": subject,
        "trials": len(trials),
        "outcomes": {outcome.value: count for outcome, count in count_outcomes(trials).items()},
        "median_min": min(medians, default=None),
        "median_max": max(medians, default=None),
    }


def metric_rows(data: RunData) -> Iterator[dict[str, Any]]:
    """One row per trial: what it was, how it ended, and every aggregate."""
    for trial in data.trials:
        record = trial.counted
        yield {
            "index": trial.planned.index,
            "key": trial.planned.key,
            "subject": trial.planned.subject,
            "parameters": trial.planned.params,
            "agent": trial.planned.agent,
            "model": trial.planned.model,
            "agent_options": shown_options(arm_of(trial.planned).options),
            "rollout": trial.planned.rollout,
            "outcome": trial.outcome.value if trial.outcome else None,
            "attempts": len(trial.attempts),
            "reward": record.reward if record else None,
            "median_interval_95": trial.interval,
            "metrics": record.metrics if record else {},
        }


def write(data: RunData, folder: Path) -> None:
    """Write `summary.json`, `metrics.json`, the spec for another run, and a single point's `result.json`."""
    info = data.info
    head = encode(
        {"schema_version": SCHEMA_VERSION, "run_id": info.id, "metric": metric_of(info.kind)}, indent=True
    )
    rows = ",\n".join(f"  {encode(row)}" for row in metric_rows(data))
    write_atomic(folder / "metrics.json", f'{head[:-2]},\n "trials": [\n{rows}\n ]\n}}\n')
    if len(data.trials) == 1 and data.trials[0].counted and not data.trimmed:
        only = data.trials[0]
        write_atomic(folder / "result.json", ResultWriter(info).encode(only.planned, data.trials[0].counted))
    if info.resolved:
        write_json(folder / "spec.json", info.resolved)
    write_json(folder / "summary.json", summary(data))
