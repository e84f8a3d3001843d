"""The file of a comparison: every slot that was measured, so that it can be judged again years later."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from proctor.analysis.both_clocks import Finding
from proctor.analysis.lockstep import ClockFinding, Rules, SelfCheck, Verdict, log_ratio
from proctor.disk import read_small
from proctor.engine.ab import Asked, PointResult, corrected, rejudge
from proctor.engine.ab_run import Comparison
from proctor.engine.ab_words import sentence
from proctor.errors import StoreError, UsageError
from proctor.model.lockstep import SLOT_FIELDS, Calibration, Pair, Schedule

SCHEMA_VERSION = 1
_MOST_BYTES = 256 << 20
KIND = "proctor.ab"


def to_mapping(comparison: Comparison, *, slots: bool = True) -> dict[str, Any]:
    """Plain data: what was asked, what was found, and with `slots` everything it was found from."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "name": comparison.name,
        "a": comparison.a,
        "b": comparison.b,
        "verdict": comparison.verdict.value,
        "asked": asdict(comparison.asked),
        "notes": list(comparison.notes),
        "lost": list(comparison.lost),
        "cpu_s": comparison.cpu_s,
        "wall_s": comparison.wall_s,
        "points": [_point(result, slots=slots) for result in comparison.results],
        **({"slot_fields": list(SLOT_FIELDS)} if slots else {}),
    }


def _point(result: PointResult, *, slots: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "label": result.label,
        "params": dict(result.params),
        "sentence": sentence(result),
        **judged(result),
        "call_s": {"a": call_s(result, "a"), "b": call_s(result, "b")},
        "log_ratios": _log_ratios(result),
        "calibration": asdict(result.calibration) if result.calibration else None,
    }
    data["machine"] = {
        "involuntary_switches": sum(slot.involuntary for pair in result.pairs for slot in (*pair.a, *pair.b)),
        "page_faults": sum(slot.faults for pair in result.pairs for slot in (*pair.a, *pair.b)),
        "steal_s": sum(pair.steal_s for pair in result.pairs),
        "cpu_pressure_s": sum(pair.pressure_s for pair in result.pairs),
        "cpus": sorted({pair.cpu for pair in result.pairs if pair.cpu is not None}),
    }
    if slots:
        data["pairs_data"] = [pair.to_mapping() for pair in result.pairs]
    return data


def judged(result: PointResult) -> dict[str, Any]:
    """What was found at one point; `proctor time` writes the same."""
    return {
        **asdict(result.finding),
        "verdict": result.verdict.value,
        "ratio": 1 + result.finding.change,
        "confirmed": result.confirmed,
        "identical": result.identical,
        "self_check": asdict(result.check),
    }


def _log_ratios(result: PointResult) -> list[float]:
    finding = result.finding
    return [log_ratio(pair, finding.clock, parallel=finding.parallel) for pair in result.pairs]


def call_s(result: PointResult, side: str) -> float:
    """Time of one call on the clock that was judged: the median of the pairs' medians."""
    return median(pair_s(result, side))


def pair_s(result: PointResult, side: str) -> list[float]:
    """Time of one call in each pair, in order."""
    waits = result.finding.clock == "wall"
    name = "cpu_ns" if not waits else "wall_ns" if result.finding.parallel else "elapsed_ns"
    return [
        float(median(getattr(slot, name) for slot in getattr(pair, side)[pair.schedule.warmup :]))
        / pair.schedule.loops
        / 1e9
        for pair in result.pairs
    ]


def save(comparison: Comparison, *, path: Path | None, folder: Path, now: float) -> Path:
    """Write the file, to `path` or else to a name of its own in `folder`, which no other run can take."""
    data = to_mapping(comparison) | {
        "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.platform(),
            "cpus": os.cpu_count(),
        },
    }
    text = json.dumps(data, separators=(",", ":"), default=str) + "\n"
    try:
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return path
        folder.mkdir(parents=True, exist_ok=True)
        return _write_new(folder, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)), text)
    except OSError as error:
        raise StoreError(f"{path or folder}: the comparison cannot be saved: {error.strerror}") from error


def _write_new(folder: Path, stamp: str, text: str) -> Path:
    number = 1
    while True:
        path = folder / (f"ab-{stamp}.json" if number == 1 else f"ab-{stamp}-{number}.json")
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            number += 1
        else:
            return path


def read(path: Path) -> Comparison:
    """A comparison from its file."""
    try:
        data = json.loads(read_small(path, _MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, Mapping) or data.get("kind") != KIND:
        raise UsageError(f"{path}: not a file that 'proctor ab' wrote")
    if data["schema_version"] > SCHEMA_VERSION:
        raise UsageError(f"{path}: written by a later version of Proctor; this one reads {SCHEMA_VERSION}")
    try:
        return _comparison(data)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: damaged: {type(error).__name__}: {error}") from error


def _comparison(data: Mapping[str, Any]) -> Comparison:
    asked = data["asked"]
    rules = Rules(**{**asked["rules"], "looks": tuple(asked["rules"]["looks"])})
    return Comparison(
        name=data["name"],
        a=data["a"],
        b=data["b"],
        asked=Asked(**{**asked, "rules": rules}),
        results=tuple(_result(point) for point in data["points"]),
        notes=tuple(data["notes"]),
        lost=tuple(data.get("lost", ())),
        cpu_s=data["cpu_s"],
        wall_s=data["wall_s"],
    )


def _result(data: Mapping[str, Any]) -> PointResult:
    calibration = data["calibration"]
    if calibration:
        calibration = Calibration(
            schedule=Schedule(**calibration["schedule"]),
            call_wall_s=calibration["call_wall_s"],
            call_cpu_s=calibration["call_cpu_s"],
            at_once=calibration.get("at_once", 0.0),
        )
    found = {each.name: data[each.name] for each in fields(Finding) if each.name in data}
    clocks = tuple(_clock(each) for each in data.get("clocks", ()))
    return PointResult(
        label=data["label"],
        params=data["params"],
        finding=Finding(**{**found, "verdict": Verdict(data["verdict"]), "clocks": clocks}),
        check=SelfCheck(**data["self_check"]),
        pairs=tuple(Pair.from_mapping(pair) for pair in data["pairs_data"]),
        confirmed=data["confirmed"],
        calibration=calibration,
        identical=data.get("identical", False),
    )


def _clock(data: Mapping[str, Any]) -> ClockFinding:
    verdict = data["verdict"] and Verdict(data["verdict"])
    return ClockFinding(**{**data, "verdict": verdict})


def replay(comparison: Comparison, rules: Rules) -> Comparison:
    """Judge the recorded pairs again. Pairs that were never measured stay unmeasured."""
    rules = replace(rules, points=len(comparison.results))
    asked = replace(comparison.asked, rules=rules)
    judged = [rejudge(result, rules, confirm=asked.confirm) for result in comparison.results]
    return replace(comparison, asked=asked, results=tuple(corrected(judged)))
