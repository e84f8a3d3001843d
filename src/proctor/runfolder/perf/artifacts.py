"""The files of one run of the harness: a stamp of their own, data first, a manifest that seals them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from proctor.errors import StoreError
from proctor.runfolder.files import encode, make_folder, write_atomic, write_error
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.documents import PerfRun

STAMP = "%Y%m%dT%H%M%SZ"
KINDS = ("manifest", "summary", "metrics", "series")
_ROWS = ("episodes", "samples", "groups")


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """The files of one run, by their stamp."""

    folder: Path
    stamp: str

    def path(self, kind: str) -> Path:
        """`perf-<kind>-<stamp>.json`."""
        return self.folder / f"perf-{kind}-{self.stamp}.json"

    @property
    def bundle(self) -> Path:
        """`perf-artifacts-<stamp>.zip`."""
        return self.folder / f"perf-artifacts-{self.stamp}.zip"

    def chart(self, name: str, suffix: str) -> Path:
        """`perf-chart-<name>-<stamp>.svg` or `.png`."""
        return self.folder / f"perf-chart-{name}-{self.stamp}.{suffix}"


def claim_set(folder: Path, at: datetime) -> ArtifactSet:
    """A unique stamp for a run: its second, or the next free one."""
    make_folder(folder)
    for seconds in range(100_000):
        taken = ArtifactSet(folder, (at + timedelta(seconds=seconds)).astimezone(UTC).strftime(STAMP))
        claim = _claim(taken)
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise write_error(claim, error) from error
        if not any(folder.glob(f"perf-*-{taken.stamp}.*")):
            return taken
        claim.unlink(missing_ok=True)
    raise StoreError(f"{folder}: no free time stamp near {at:{STAMP}}")


def release(taken: ArtifactSet) -> None:
    """The set is complete, or given up."""
    with suppress(OSError):
        _claim(taken).unlink(missing_ok=True)


def _claim(taken: ArtifactSet) -> Path:
    return taken.folder / f".perf-{taken.stamp}.claim"


def write_set(taken: ArtifactSet, run: PerfRun, charts: Mapping[str, tuple[str, bytes]]) -> list[Path]:
    """Write everything; the manifest comes last, so a set that has one is complete. What was written."""
    files: dict[Path, bytes] = {
        taken.path("summary"): dump(documents.summary(run)),
        taken.path("metrics"): dump(documents.metrics(run)),
        taken.path("series"): dump(documents.series(run)),
    }
    for name, (svg, png) in charts.items():
        files[taken.chart(name, "svg")] = svg.encode()
        files[taken.chart(name, "png")] = png
    listed = [_entry(path, data) for path, data in files.items()]
    if run.compress:
        listed.append({"name": taken.bundle.name, "kind": "bundle", "bytes": None, "sha256": None})
    manifest = dump(documents.manifest(run, listed))
    for path, data in files.items():
        write_atomic(path, data)
    if run.compress:
        members = [*files.items(), (taken.path("manifest"), manifest)]
        write_atomic(taken.bundle, _zip([(path.name, data) for path, data in members]))
    write_atomic(taken.path("manifest"), manifest)
    return [*files, *([taken.bundle] if run.compress else ()), taken.path("manifest")]


def _entry(path: Path, data: bytes) -> dict[str, Any]:
    kind = "chart" if path.name.startswith("perf-chart-") else path.name.split("-")[1]
    return {
        "name": path.name,
        "kind": kind,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _zip(members: Sequence[tuple[str, bytes]]) -> bytes:
    """A ZIP that depends on its content alone, not on when it was made."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return target.getvalue()


def dump(document: Mapping[str, Any]) -> bytes:
    """JSON with a key per line, and a line per row in what is long: small, and a diff shows one episode."""
    return (_dump(document, " ") + "\n").encode()


def _dump(value: Any, pad: str) -> str:
    if not isinstance(value, Mapping) or not value:
        return encode(value)
    parts = []
    for key, item in value.items():
        if key in _ROWS and isinstance(item, list) and item:
            rows = ",\n".join(f"{pad} {encode(row)}" for row in item)
            parts.append(f"{pad}{encode(key)}: [\n{rows}\n{pad}]")
        elif isinstance(item, Mapping) and any(name in item for name in _ROWS):
            parts.append(f"{pad}{encode(key)}: {_dump(item, pad + ' ')}")
        else:
            parts.append(f"{pad}{encode(key)}: {encode(item)}")
    return "{\n" + ",\n".join(parts) + f"\n{pad[1:]}}}"
