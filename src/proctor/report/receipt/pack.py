"""Pack a run into one file: its documents made anew from the rows, its artifacts, and `receipt.json`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.place import safe_name
from proctor.model.plan import Plan
from proctor.model.record import Artifact
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.report.data import RunData
from proctor.report.files import make_folder, write_error
from proctor.report.receipt import document
from proctor.report.receipt.container import Packer
from proctor.report.receipt.document import File
from proctor.report.receipt.rebuild import installed_version, write_documents, write_raw
from proctor.report.result import artifact_paths
from proctor.report.series import SeriesRow

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

SUFFIX = ".receipt.zip"
_EVIDENCE = re.compile(r"verifier/(.+/)?reward\.(json|txt)|rubrics\.json")
"""Small artifacts that rewards follow from; they are packed even when the others are not."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What was packed."""

    info: RunInfo
    path: Path
    root: str
    files: int
    left_out: int
    """Artifacts known by their digest alone."""
    size_bytes: int


def receipt_name(info: RunInfo) -> str:
    """The file's usual name."""
    return f"{safe_name(info.name)}-{safe_name(info.id)}{SUFFIX}"


def is_evidence(name: str) -> bool:
    """Whether a reward follows from this artifact."""
    return _EVIDENCE.fullmatch(name) is not None


def pack_run(store: Store, blobs: Blobs, run_id: str, path: Path, *, artifacts: bool = True) -> Packed:
    """Write the receipt of a run that has ended. A file that exists is never overwritten."""
    info = store.run(run_id)
    if info.status in {RunStatus.PENDING, RunStatus.RUNNING}:
        raise UsageError(
            f"run {info.id} is {info.status.value}: a receipt is of a run that has ended; "
            f"'proctor cancel {info.id}' ends it"
        )
    plan = Plan(trials=tuple(store.planned(info.id)), warnings=store.warnings(info.id))
    with tempfile.TemporaryDirectory(prefix="proctor-receipt-") as scratch:
        raw, made = Path(scratch, "raw"), Path(scratch, "made")
        rows = (SeriesRow(row.trial, row.record, row.counts) for row in store.attempts(info.id))
        attempts = write_raw(info, plan, rows, raw)
        data = RunData.from_folder(raw)
        write_documents(data, made)
        head = document.head_of(data.info, plan.trials, attempts=attempts, proctor=installed_version())
        with _new_file(path) as sink:
            files, root = _write(sink, made, data, blobs, head, artifacts=artifacts)
    absent = sum(not each.packed for each in files)
    return Packed(info, path, root, len(files), absent, path.stat().st_size)


def _write(
    sink: BinaryIO, made: Path, data: RunData, blobs: Blobs, head: dict[str, object], *, artifacts: bool
) -> tuple[list[File], str]:
    kept = {path: artifact for path, artifact in _artifacts(data) if not (made / path).exists()}
    documents = [str(each.relative_to(made)) for each in made.rglob("*") if each.is_file()]
    packer = Packer(sink)
    files: list[File] = []
    for path in sorted([*documents, *kept]):
        artifact = kept.get(path)
        if artifact and not artifacts and not (is_evidence(artifact.name) and blobs.has(artifact.digest)):
            files.append(File(path, artifact.digest, artifact.size_bytes, packed=False))
            continue
        with ExitStack() as stack:
            source = stack.enter_context(
                _blob(blobs, artifact, path) if artifact else (made / path).open("rb")
            )
            size = artifact.size_bytes if artifact else (made / path).stat().st_size
            try:
                written = packer.add(path, source, size)
            except ValueError as error:
                raise StoreError(f"{path}: {error}") from error
        if artifact and written.sha256 != artifact.digest:
            raise StoreError(f"{path}: the blob {artifact.digest} in the store is damaged")
        files.append(File(path, written.sha256, written.size))
    text, root = document.write(head, files)
    content = text.encode()
    packer.add(document.NAME, io.BytesIO(content), len(content))
    packer.close()
    return files, root


def _artifacts(data: RunData) -> Iterator[tuple[str, Artifact]]:
    for row in data.rows():
        if row.record.artifacts:
            yield from zip(artifact_paths(row.trial, row.record), row.record.artifacts, strict=True)


def _blob(blobs: Blobs, artifact: Artifact, path: str) -> BinaryIO:
    try:
        return blobs.open(artifact.digest)
    except NotFoundError:
        raise StoreError(
            f"{path}: the blob {artifact.digest} is not in the store; --no-artifacts packs without it"
        ) from None


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Written beside and linked into place: a receipt is complete or absent, and replaces nothing."""
    if path.exists():
        raise UsageError(f"{path}: exists already; choose another name or remove it first")
    make_folder(path.parent)
    beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    try:
        with beside.open("w+b") as sink:
            yield sink
        beside.rename(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        beside.unlink(missing_ok=True)
