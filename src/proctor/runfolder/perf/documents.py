"""The four documents of a run of the harness, as plain data. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.model.arms import Arm, shown_options
from proctor.model.describe import percentile
from proctor.runfolder.perf.episode import OWN, PHASES, Episode

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfRun:
    """Everything the documents are made from."""

    run_id: str
    generated_at: str
    episodes: tuple[Episode, ...]
    planned: int
    """How many were requested; fewer ended if the run was stopped."""
    workers: int
    timeout_s: float
    strict_spec: bool
    compress: bool
    scenario_name: str
    scenario: tuple[Mapping[str, Any], ...]
    sandbox: str
    system: Mapping[str, Any]
    """The system's time series, as its sampler gives it."""
    run_artifacts: Mapping[str, Any]
    prepare_s: float = 0.0
    """Images and first sandboxes, before the first episode."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    vcs: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    growth: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many samples the system's series has."""
        return len(self.system.get("samples", ()))


def summary(run: PerfRun) -> dict[str, Any]:
    """`perf-summary`: what a gate looks at."""
    walls = sorted(each.wall_clock_s for each in run.episodes)
    failures = [each for each in run.episodes if not each.success]
    total_s = max((each.started_s + each.wall_clock_s for each in run.episodes), default=0.0)
    spent = {name: math.fsum(each.phases_s.get(name, 0.0) for each in run.episodes) for name in PHASES}
    whole = math.fsum(spent.values())
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "generated_at": run.generated_at,
        "scenario": run.scenario_name,
        "sandbox": run.sandbox,
        "summary": {
            "total": len(run.episodes),
            "passed": len(run.episodes) - len(failures),
            "failed": len(failures),
            "workers": run.workers,
            "p50_wall_clock_s": _at(walls, 50),
            "p95_wall_clock_s": _at(walls, 95),
        },
        "episodes": len(run.episodes),
        "success_count": len(run.episodes) - len(failures),
        "failure_count": len(failures),
        "max_wall_clock_s": round(walls[-1], 6) if walls else 0.0,
        "failure_reasons": _counted(each.reason for each in failures),
        "run_artifacts": dict(run.run_artifacts),
        "system_samples": run.samples,
        "telemetry_verbosity": _verbosity(run.episodes),
        "throughput_eps": round(len(run.episodes) / total_s, 3) if total_s else 0.0,
        "wall_clock_total_s": round(total_s, 6),
        "prepare_s": round(run.prepare_s, 6),
        "overhead_s": {name: round(value, 6) for name, value in spent.items()},
        "overhead_share": round(sum(spent[name] for name in OWN) / whole, 4) if whole else 0.0,
        "growth": {name: each["verdict"] for name, each in run.growth.items()},
    }


def _verbosity(episodes: Sequence[Episode]) -> dict[str, float | int]:
    """How much an episode leaves to read, so that a chatty change shows."""
    found: dict[str, float | int] = {}
    columns = {
        "artifact_bytes": sorted(each.artifact_bytes for each in episodes),
        "llm_trace_entries": sorted(each.trace.entries for each in episodes),
    }
    for name, values in columns.items():
        found[f"{name}_total"] = sum(values)
        found[f"{name}_avg"] = round(sum(values) / len(values), 3) if values else 0.0
        found[f"{name}_p50"] = _at(values, 50)
        found[f"{name}_p95"] = _at(values, 95)
        found[f"{name}_max"] = values[-1] if values else 0
    return {
        **found,
        "prompt_bytes_total": sum(each.trace.prompt_bytes for each in episodes),
        "completion_bytes_total": sum(each.trace.completion_bytes for each in episodes),
        "tokens_used_total": sum(each.trace.tokens_used for each in episodes),
    }


def metrics(run: PerfRun) -> dict[str, Any]:
    """`perf-metrics`: each task and agent, with its options, apart, and whether anything grows."""
    groups: dict[tuple[str, Arm], list[Episode]] = {}
    for each in run.episodes:
        groups.setdefault(each.group, []).append(each)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "generated_at": run.generated_at,
        "groups": [_group(*name, episodes) for name, episodes in groups.items()],
        "growth": {name: dict(each) for name, each in run.growth.items()},
    }


def _group(task_ref: str, arm: Arm, episodes: Sequence[Episode]) -> dict[str, Any]:
    walls = sorted(each.wall_clock_s for each in episodes)
    sizes = [each.artifact_bytes for each in episodes]
    count, allowed = len(episodes), episodes[0].ceilings
    return {
        "task_ref": task_ref,
        "agent": arm.agent,
        "model": arm.model,
        "agent_options": shown_options(arm.options),
        "run_count": count,
        "success_rate": round(sum(each.success for each in episodes) / count, 6),
        "determinism_rate": determinism_rate(episodes),
        "steps": _spread([each.trace.steps for each in episodes], allowed.get("steps")),
        "tool_calls": _spread([each.trace.tool_calls for each in episodes], allowed.get("tool_calls")),
        "failure_taxonomy": _counted(each.reason for each in episodes if each.reason),
        "termination_taxonomy": _counted(each.outcome.value for each in episodes),
        "avg_wall_clock_s": round(math.fsum(walls) / count, 6),
        "p50_wall_clock_s": _at(walls, 50),
        "p95_wall_clock_s": _at(walls, 95),
        "artifact_bytes_total": sum(sizes),
        "artifact_bytes_avg": round(sum(sizes) / count, 3),
        "tokens_used_total": sum(each.trace.tokens_used for each in episodes),
        "phases_avg_s": {
            phase: round(math.fsum(each.phases_s.get(phase, 0.0) for each in episodes) / count, 6)
            for phase in PHASES
        },
    }


def determinism_rate(episodes: Sequence[Episode]) -> float | None:
    """Of the episodes whose seed came more than once, how many left their seed's most common trace.

    None when no seed came twice: nothing is known then, which is not the same as 1.
    """
    seeds: dict[int, Counter[str]] = {}
    for each in episodes:
        seeds.setdefault(each.seed, Counter())[each.trace.digest] += 1
    repeated = [traces for traces in seeds.values() if traces.total() > 1]
    if not repeated:
        return None
    alike = sum(traces.most_common(1)[0][1] for traces in repeated)
    return round(alike / sum(traces.total() for traces in repeated), 6)


def series(run: PerfRun) -> dict[str, Any]:
    """`perf-series`: a row per episode, and the machine over time."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "generated_at": run.generated_at,
        "episodes": [each.row() for each in run.episodes],
        "system": dict(run.system),
    }


def manifest(run: PerfRun, artifact_set: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`perf-manifest`: the options, the machine and the files written."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "generated_at": run.generated_at,
        "episodes": run.planned,
        "episodes_run": len(run.episodes),
        "workers": run.workers,
        "timeout": run.timeout_s,
        "strict_spec": run.strict_spec,
        "compress": run.compress,
        "scenario_name": run.scenario_name,
        "scenario": [dict(each) for each in run.scenario],
        "sandbox": run.sandbox,
        "system_samples": run.samples,
        "environment": dict(run.environment),
        "vcs": dict(run.vcs),
        "versions": dict(run.versions),
        "artifact_set": [dict(each) for each in artifact_set],
    }


def _spread(values: Sequence[float], allowed: int | None = None) -> dict[str, float]:
    """`ceiling` is what the task allows, and the most that was used where it allows any number."""
    ordered = sorted(values)
    ceiling = ordered[-1] if allowed is None else allowed
    return {"p50": _at(ordered, 50), "p95": _at(ordered, 95), "ceiling": ceiling}


def _at(ordered: Sequence[float], percent: float) -> float:
    return round(percentile(ordered, percent), 6) if ordered else 0.0


def _counted(names: Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
