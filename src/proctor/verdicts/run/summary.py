"""`summary.json` and `metrics.json`: the result of a run, and the aggregates of each trial."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from proctor.model.record import SCHEMA_VERSION
from proctor.runfolder.files import encode, listed, write_atomic, write_json
from proctor.runfolder.read import RunData
from proctor.runfolder.result import ResultWriter
from proctor.runfolder.write import run_fields
from proctor.verdicts.rollouts.document import agent_options
from proctor.verdicts.run.story import headline, warnings
from proctor.verdicts.run.survey import Group, run_clock, survey


def summary(data: RunData) -> dict[str, Any]:
    """The run in a page: status, headline, outcomes, warnings and a line per subject."""
    info, seen = data.info, survey(data)
    blame: Counter[str] = Counter()
    for outcome, count in seen.outcomes.items():
        blame[outcome.blame.value] += count
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run_fields(info),
        "host_root": info.host_root,
        "headline": headline(data),
        "metric": run_clock(data).metric,
        "clock": run_clock(data).why,
        "wall_s": info.finished_at - info.started_at if info.finished_at and info.started_at else None,
        "trials": {"total": seen.total, "finished": seen.finished, "missing": seen.total - seen.finished},
        "attempts": {"total": seen.attempts, "not_counted": seen.attempts - seen.finished},
        "outcomes": {outcome.value: count for outcome, count in seen.outcomes.items()},
        "blame": dict(blame),
        "warnings": warnings(data),
        "subjects": [_subject(group) for group in seen.groups],
    }
    if info.kind == "task":
        from proctor.verdicts.rollouts import document as rolled_out
        from proctor.verdicts.rollouts import performance
        from proctor.verdicts.rollouts.evidence import evidence
        from proctor.verdicts.rollouts.scores import rollouts

        document |= rolled_out.overview(rollouts(data))
        document["arms"] = rolled_out.arms(data)
        if measured := performance.overview(data):
            document["performance"] = measured
        document["suspects"] = seen.suspects
        document["images"] = [each.to_mapping() for each in evidence(data).images]
    return document


def _subject(group: Group) -> dict[str, Any]:
    medians = [median for median in group.medians if not math.isnan(median)]
    return {
        "subject": group.subject,
        "trials": len(group.trials),
        "outcomes": {outcome.value: count for outcome, count in group.outcomes.items()},
        "median_min": min(medians, default=None),
        "median_max": max(medians, default=None),
    }


def metric_rows(data: RunData) -> Iterator[dict[str, Any]]:
    """One row per trial: what it was, how it ended, and every aggregate."""
    metric = run_clock(data).metric
    for trial in data.trials:
        record = trial.counted
        yield {
            "index": trial.planned.index,
            "key": trial.planned.key,
            "subject": trial.planned.subject,
            "parameters": trial.planned.params,
            "agent": trial.planned.agent,
            "model": trial.planned.model,
            "agent_options": agent_options(trial.planned),
            "rollout": trial.planned.rollout,
            "outcome": trial.outcome.value if trial.outcome else None,
            "attempts": len(trial.attempts),
            "reward": record.reward if record else None,
            "median_interval_95": trial.interval_of(metric),
            "metrics": record.metrics if record else {},
        }


def write(data: RunData, folder: Path) -> None:
    """Write `summary.json`, `metrics.json`, the spec for another run, and a single point's `result.json`."""
    info = data.info
    head = encode(
        {"schema_version": SCHEMA_VERSION, "run_id": info.id, "metric": run_clock(data).metric}, indent=True
    )
    rows = listed(encode(row) for row in metric_rows(data))
    write_atomic(folder / "metrics.json", chain([f'{head[:-2]},\n "trials": [\n'], rows, ["\n ]\n}\n"]))
    if len(data.trials) == 1 and not data.trimmed and (counted := (only := data.trials[0]).counted):
        write_atomic(folder / "result.json", ResultWriter(info).encode(only.planned, counted))
    if info.resolved:
        write_json(folder / "spec.json", info.resolved)
    write_json(folder / "summary.json", summary(data))
