"""Read result files: our own RunResult documents, and those of pyperf, pytest-benchmark, hyperfine and asv.

Each reader recognises its format by shape and gives None for anything else. Files come from strangers:
what is not a finite number is no sample, and a benchmark without samples is a failed point, not a gap.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.quantity import number
from proctor.verdicts.compare.facts import gather
from proctor.verdicts.compare.results import ResultPoint, ResultSet
from proctor.verdicts.compare.run_result import is_run_result, run_result

MAX_BYTES = 256 << 20
FORMATS = "a Proctor RunResult, pyperf, pytest-benchmark, hyperfine or asv JSON file"


def read_file(path: Path, metrics: tuple[str, ...] = ()) -> ResultSet:
    """A result file of any known format; of a RunResult the values of these metrics, or of all it has."""
    document = _load(path)
    if is_run_result(document):
        return run_result(document, metrics)
    for reader in READERS:
        found = reader(document, path.name)
        if found is not None:
            if not found.points:
                raise UsageError(f"{path}: a {found.source} file without benchmarks")
            return found
    raise UsageError(f"{path}: not {FORMATS}")


def pyperf(document: Mapping[str, Any], label: str) -> ResultSet | None:
    """pyperf: each worker process gives one sample, the median of its values, which are not independent."""
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not any("runs" in _mapping(each) for each in benchmarks):
        return None
    common = _mapping(document.get("metadata"))
    points, units = [], {"second": "duration_s", "byte": "size_bytes", "integer": "value"}
    metrics = set()
    for place, benchmark in enumerate(map(_mapping, benchmarks)):
        metadata = {**common, **_mapping(benchmark.get("metadata"))}
        metric = units.get(str(metadata.get("unit", "second")), "value")
        runs = [_numbers(_mapping(run).get("values")) for run in _list(benchmark.get("runs"))]
        runs = [run for run in runs if run]
        values = [median(run) for run in runs] if len(runs) > 1 else [*itertools.chain(*runs)]
        metrics.add(metric)
        points.append(_point(str(metadata.get("name") or f"benchmark {place + 1}"), metric, values))
    first = _mapping(_mapping(benchmarks[0]).get("metadata")) if benchmarks else {}
    worker = _first_run_metadata(benchmarks)
    return _result_set(label, "pyperf", points, {**worker, **first, **common}, metrics)


def pytest_benchmark(document: Mapping[str, Any], label: str) -> ResultSet | None:
    """pytest-benchmark: rounds when they were saved, otherwise the median alone."""
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not any("stats" in _mapping(each) for each in benchmarks):
        return None
    points = []
    for place, benchmark in enumerate(map(_mapping, benchmarks)):
        stats = _mapping(benchmark.get("stats"))
        values = _numbers(stats.get("data")) or _numbers([stats.get("median")])
        name = str(benchmark.get("fullname") or benchmark.get("name") or f"benchmark {place + 1}")
        points.append(_point(name, "duration_s", values))
    return _result_set(
        label, "pytest-benchmark", points, _mapping(document.get("machine_info")), {"duration_s"}
    )


def hyperfine(document: Mapping[str, Any], label: str) -> ResultSet | None:
    """hyperfine: one command per point; a command that ever failed is a failed point."""
    results = document.get("results")
    if not isinstance(results, list) or not any("command" in _mapping(each) for each in results):
        return None
    points = []
    for place, result in enumerate(map(_mapping, results)):
        values = _numbers(result.get("times")) or _numbers([result.get("median")])
        codes = [code for code in _list(result.get("exit_codes")) if code]
        name = str(result.get("command") or f"command {place + 1}")
        params = _mapping(result.get("parameters"))
        failed = f"exit code {codes[0]} in {len(codes)} of {len(values)} runs" if codes else ""
        points.append(_point(name, "duration_s", values, failed=failed, params=params))
    return _result_set(label, "hyperfine", points, {}, {"duration_s"})


def asv(document: Mapping[str, Any], label: str) -> ResultSet | None:
    """asv: a row of columns per benchmark, each column a list over the parameter combinations."""
    results = document.get("results")
    if not isinstance(results, Mapping) or "commit_hash" not in document:
        return None
    columns = [str(column) for column in _list(document.get("result_columns"))]
    points, metrics = [], set()
    for name, value in results.items():
        if isinstance(value, Mapping):
            row = dict(value)
        elif columns and isinstance(value, list):
            row = dict(zip(columns, value, strict=False))
        else:
            row = {"result": value}
        metric = _asv_metric(str(name))
        metrics.add(metric)
        points += _asv_points(str(name), row, metric)
    machine = {**_mapping(document.get("params")), "requirements": document.get("requirements")}
    return _result_set(label, "asv", points, machine, metrics)


READERS: tuple[Callable[[Mapping[str, Any], str], ResultSet | None], ...] = (
    pyperf,
    pytest_benchmark,
    hyperfine,
    asv,
)


def _asv_points(name: str, row: Mapping[str, Any], metric: str) -> list[ResultPoint]:
    axes = [[str(each) for each in _list(axis)] for axis in _list(row.get("params"))]
    combinations = list(itertools.islice(itertools.product(*axes), 100_000)) if axes else [()]
    results, samples = row.get("result"), _list(row.get("samples"))
    results = results if isinstance(results, list) else [results]
    points = []
    for place, combination in enumerate(combinations):
        values = _numbers(samples[place]) if place < len(samples) else []
        values = values or _numbers(results[place : place + 1])
        inside = ", ".join(combination)
        params = {f"param{at + 1}": value for at, value in enumerate(combination)}
        points.append(_point(f"{name}({inside})" if inside else name, metric, values, params=params))
    return points


def _asv_metric(name: str) -> str:
    method = name.rpartition(".")[2]
    for prefix, metric in (("time", "duration_s"), ("peakmem", "peak_bytes"), ("mem", "size_bytes")):
        if method.lower().startswith(prefix):
            return metric
    return "value"


def _point(
    name: str, metric: str, values: list[float], *, failed: str = "", params: Mapping[str, Any] | None = None
) -> ResultPoint:
    if not values and not failed:
        failed = "no result"
    samples = {metric: tuple(values)} if values and not failed else {}
    return ResultPoint(name=name, subject=name, params=dict(params or {}), samples=samples, failed=failed)


def _result_set(
    label: str, source: str, points: list[ResultPoint], machine: Mapping[str, Any], metrics: set[str]
) -> ResultSet:
    return ResultSet(
        label=label,
        source=source,
        points=tuple(_distinct(points)),
        facts=gather(machine),
        metric="duration_s" if "duration_s" in metrics or not metrics else min(metrics),
        metrics=tuple(sorted(metrics)),
    )


def _distinct(points: Iterable[ResultPoint]) -> Iterable[ResultPoint]:
    """Two benchmarks of one name stay two: the second is numbered."""
    seen: dict[str, int] = {}
    for point in points:
        seen[point.name] = seen.get(point.name, 0) + 1
        yield point if seen[point.name] == 1 else replace(point, name=f"{point.name} #{seen[point.name]}")


def _first_run_metadata(benchmarks: list[Any]) -> Mapping[str, Any]:
    for benchmark in benchmarks:
        for run in _list(_mapping(benchmark).get("runs")):
            if metadata := _mapping(_mapping(run).get("metadata")):
                return metadata
    return {}


def _load(path: Path) -> Mapping[str, Any]:
    try:
        # asv writes Infinity and NaN, which are not JSON; they are no samples either.
        document = json.loads(read_small(path, MAX_BYTES), parse_constant=lambda _: None)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: not {FORMATS}")
    return document


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(value: Any) -> list[float]:
    return [found for each in _list(value) if (found := number(each)) is not None]
