"""The document of `proctor time`: every value, in the shape of hyperfine's, which `proctor compare` reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from proctor.analysis.distributions import t_quantile
from proctor.engine.ab import PointResult
from proctor.engine.ab_file import judged
from proctor.engine.time_commands import Timed
from proctor.engine.time_statements import TimedStatements
from proctor.errors import StoreError
from proctor.model.lockstep import layouts_to_mapping

SCHEMA_VERSION = 1
KIND = "proctor.time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Some times, in numbers."""

    count: int
    mean: float
    stddev: float | None
    median: float
    low: float | None
    high: float | None
    """The 95 % interval of the mean; nothing for a single value."""
    min: float
    max: float


def describe(values: Sequence[float]) -> Described:
    """Of at least one value."""
    count, mean = len(values), fmean(values)
    spread = stdev(values) if count > 1 else None
    half = t_quantile(0.975, count - 1) * spread / count**0.5 if spread is not None else None
    return Described(
        count=count,
        mean=mean,
        stddev=spread,
        median=median(values),
        low=mean - half if half is not None else None,
        high=mean + half if half is not None else None,
        min=min(values),
        max=max(values),
    )


def of_commands(timed: Timed) -> dict[str, Any]:
    """Commands: one entry of `results` each, one of `comparisons` for each but the first."""
    results = []
    for command, runs in zip(timed.study.commands, timed.executions, strict=True):
        if not runs:
            continue
        results.append(
            _entry(command.text, command.name, [each.wall_ns / 1e9 for each in runs])
            | {
                "user": fmean(each.user_ns for each in runs) / 1e9,
                "system": fmean(each.system_ns for each in runs) / 1e9,
                "cpu_times": [each.cpu_ns / 1e9 for each in runs],
                "cpu": asdict(describe([each.cpu_ns / 1e9 for each in runs])),
                "layouts": [each.layout._asdict() for each in runs],
                "exit_codes": [each.exit_code for each in runs],
                "peak_rss_bytes": max(each.peak_rss_bytes for each in runs),
            }
        )
    comparisons = [_compared(result) for result in timed.results]
    more = {"shell_s": timed.shell_s, "interrupted": timed.interrupted, "wall_s": timed.wall_s}
    return _document("command", results, comparisons) | more


def of_statements(timed: TimedStatements) -> dict[str, Any]:
    """Statements: a value per process, of one execution."""
    asked = timed.asked
    results = [
        _entry(statement, name, walls) | {"cpu_times": list(cpus), "cpu": asdict(describe(cpus))}
        for statement, name, walls, cpus in zip(
            asked.statements, asked.names, timed.wall_s, timed.cpu_s, strict=True
        )
    ]
    comparisons = [
        _compared(comparison.results[0]) | {"name": name}
        for comparison, name in zip(timed.comparisons, asked.names[1:], strict=True)
    ]
    more = {"setup": asked.setup, "number": timed.number, "wall_s": timed.took_s}
    return _document("statement", results, comparisons) | more


def _document(mode: str, results: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "mode": mode,
        "results": results,
        "comparisons": comparisons,
    }


def _entry(text: str, name: str, times: Sequence[float]) -> dict[str, Any]:
    found = describe(times)
    return {
        "command": text,
        "name": name,
        "mean": found.mean,
        "stddev": found.stddev,
        "median": found.median,
        "min": found.min,
        "max": found.max,
        "interval": None if found.low is None else [found.low, found.high],
        "times": list(times),
    }


def _compared(result: PointResult) -> dict[str, Any]:
    found = judged(result)
    other = next((each for each in found["clocks"] if each["clock"] != found["clock"]), None)
    return {
        "name": result.label,
        **found,
        "other_clock": other,
        "orders": [pair.order for pair in result.pairs],
        "layouts": [layouts_to_mapping(pair.layouts) for pair in result.pairs],
    }


def save(document: dict[str, Any], path: Path) -> None:
    """Write the document; nothing is left of it when it cannot be written."""
    try:
        path.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"{path}: the results cannot be saved: {error.strerror}") from error
