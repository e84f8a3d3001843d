"""`--strict-spec`: read a set back from disk and prove it. Shapes, hashes, and counts that must agree."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.runfolder.files import MAX_DOCUMENT_BYTES, decode
from proctor.runfolder.perf.artifacts import KINDS, ArtifactSet
from proctor.runfolder.perf.episode import PHASES
from proctor.runfolder.perf.footprint import footprint
from proctor.runfolder.perf.schema import load_schema, problems
from proctor.tasks.archive import DAMAGED

Documents = Mapping[str, Mapping[str, Any]]


def check_set(taken: ArtifactSet, *, run_root: Path | None = None) -> list[str]:
    """Everything that is wrong with a set on disk, each with its file; empty when it is valid."""
    loaded: dict[str, dict[str, Any]] = {}
    found: list[str] = []
    for kind in KINDS:
        path = taken.path(kind)
        try:
            loaded[kind] = decode(read_small(path, MAX_DOCUMENT_BYTES), str(path))
        except (OSError, UsageError) as error:
            found.append(f"{path.name}: cannot be read: {error}")
            continue
        found += [f"{path.name}: {each}" for each in problems(loaded[kind], load_schema(f"perf-{kind}"))]
    if found:
        return found
    found += hashes(taken, loaded["manifest"])
    found += counts(loaded)
    if run_root is not None:
        found += _footprint(loaded["summary"], run_root)
    return found


def hashes(taken: ArtifactSet, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Check that every listed file exists unchanged, and that no file of this stamp is unlisted."""
    listed = {entry["name"]: entry for entry in manifest["artifact_set"]}
    for name, entry in listed.items():
        try:
            data = read_small(taken.folder / name, MAX_DOCUMENT_BYTES)
        except OSError as error:
            yield f"{name}: listed in the manifest but cannot be read: {error.strerror}"
            continue
        if entry["kind"] == "bundle":
            yield from _bundle(taken, listed)
        elif len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
            yield f"{name}: its content is not what the manifest says (sha256 {entry['sha256'][:12]}…)"
    for kind in KINDS[1:]:
        if taken.path(kind).name not in listed:
            yield f"{taken.path('manifest').name}: does not list {taken.path(kind).name}"
    here = {path.name for path in taken.folder.glob(f"perf-*-{taken.stamp}.*")}
    for name in sorted(here - listed.keys() - {taken.path("manifest").name}):
        yield f"{name}: has this run's stamp but is not listed in the manifest"
    if manifest["compress"] != (taken.bundle.name in listed):
        yield f"{taken.path('manifest').name}: 'compress' and the listed bundle do not match"


def _bundle(taken: ArtifactSet, listed: Mapping[str, Any]) -> Iterator[str]:
    name = taken.bundle.name
    wanted = {each for each in listed if each != name} | {taken.path("manifest").name}
    try:
        with zipfile.ZipFile(taken.bundle) as archive:
            inside = set(archive.namelist())
            if inside != wanted:
                yield f"{name}: contains other files than the manifest lists: {sorted(inside ^ wanted)[:5]}"
            for each in sorted(inside & wanted):
                if archive.read(each) != read_small(taken.folder / each, MAX_DOCUMENT_BYTES):
                    yield f"{name}: {each} in it differs from the file beside it"
    except (OSError, *DAMAGED) as error:
        yield f"{name}: cannot be read: {error}"


def counts(loaded: Documents) -> Iterator[str]:
    """Figures that several files state, or that follow from the rows, are the same everywhere."""
    manifest, summary = loaded["manifest"], loaded["summary"]
    metrics, series = loaded["metrics"], loaded["series"]
    rows = series["episodes"]
    failed = [row for row in rows if not row["success"]]
    pairs: list[tuple[str, Any, Any]] = [
        ("run_id of the files", {each["run_id"] for each in loaded.values()}, {manifest["run_id"]}),
        ("manifest.episodes_run and rows of the series", manifest["episodes_run"], len(rows)),
        ("summary.episodes and rows of the series", summary["episodes"], len(rows)),
        ("summary.summary.total and summary.episodes", summary["summary"]["total"], len(rows)),
        ("summary.summary.passed and success_count", summary["summary"]["passed"], summary["success_count"]),
        ("summary.summary.failed and failure_count", summary["summary"]["failed"], summary["failure_count"]),
        ("summary.success_count and the series", summary["success_count"], len(rows) - len(failed)),
        ("summary.failure_count and the series", summary["failure_count"], len(failed)),
        ("summary.failure_reasons and the series", summary["failure_reasons"], _reasons(failed)),
        ("summary.max_wall_clock_s and the series", summary["max_wall_clock_s"], _most(rows)),
        ("run_count of the metrics and the series", _sum(metrics["groups"], "run_count"), len(rows)),
        (
            "artifact_bytes of summary and series",
            summary["telemetry_verbosity"]["artifact_bytes_total"],
            _sum(rows, "artifact_bytes"),
        ),
        (
            "artifact_bytes of metrics and series",
            _sum(metrics["groups"], "artifact_bytes_total"),
            _sum(rows, "artifact_bytes"),
        ),
        ("system_samples of manifest and summary", manifest["system_samples"], summary["system_samples"]),
        ("system_samples and the series", summary["system_samples"], len(series["system"]["samples"])),
        ("workers of manifest and summary", manifest["workers"], summary["summary"]["workers"]),
        ("growth of summary and metrics", summary["growth"], _verdicts(metrics["growth"])),
    ]
    for what, one, other in pairs:
        if one != other:
            yield f"{what} differ: {one} and {other}"
    for phase in PHASES:
        stated, summed = summary["overhead_s"][phase], _sum(rows, f"{phase}_s")
        if not math.isclose(stated, summed, abs_tol=1e-6 * (len(rows) + 1)):
            yield f"summary.overhead_s.{phase} and the series differ: {stated} and {summed:.6f}"
    if len({row["episode_index"] for row in rows}) != len(rows):
        yield "an episode is in the series twice"


def _footprint(summary: Mapping[str, Any], root: Path) -> Iterator[str]:
    found = footprint(root)
    stated = summary["run_artifacts"]
    for name in ("file_count", "total_bytes"):
        if stated[name] != getattr(found, name):
            yield f"summary.run_artifacts.{name} is {stated[name]}, but {root} has {getattr(found, name)}"


def _reasons(failed: list[Mapping[str, Any]]) -> dict[str, int]:
    return dict(Counter(str(row["failure_reason"]) for row in failed))


def _verdicts(growth: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: str(each["verdict"]) for name, each in growth.items()}


def _sum(rows: list[Mapping[str, Any]], name: str) -> Any:
    values = [row[name] for row in rows]
    return math.fsum(values) if any(isinstance(each, float) for each in values) else sum(values)


def _most(rows: list[Mapping[str, Any]]) -> float:
    return max((float(row["wall_clock_s"]) for row in rows), default=0.0)
