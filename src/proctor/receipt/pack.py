"""Pack a run into one file: documents generated from the rows, artifacts, and `receipt.json`."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.place import safe_name
from proctor.model.plan import Plan
from proctor.model.record import Artifact, AttemptRow
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.receipt import document
from proctor.receipt.container import Packer, order
from proctor.receipt.document import File
from proctor.receipt.rebuild import (
    TrialDocuments,
    installed_version,
    write_raw,
    write_run_documents,
)
from proctor.runfolder.files import beside_of, make_folder, write_error
from proctor.runfolder.read import RunData
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME as SERIES
from proctor.runfolder.series import read_series

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

SUFFIX = ".receipt.zip"
_EVIDENCE = re.compile(r"verifier/(.+/)?reward\.(json|txt)|rubrics\.json|judge\.json")
"""Small artifacts that prove rewards; they are packed even when the others are not."""


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


def pack_run(
    store: Store,
    blobs: Blobs,
    run_id: str,
    path: Path,
    *,
    artifacts: bool = True,
    sign: Callable[[str], Mapping[str, Any]] | None = None,
) -> Packed:
    """Write the receipt of a run that has ended. A file that exists is never overwritten."""
    info = store.run(run_id)
    if info.status in {RunStatus.PENDING, RunStatus.RUNNING}:
        raise UsageError(
            f"run {info.id} is {info.status.value}: only a run that has ended can have a receipt; "
            f"'proctor cancel {info.id}' stops it"
        )
    plan = Plan(trials=tuple(store.planned(info.id)), warnings=store.warnings(info.id))
    with tempfile.TemporaryDirectory(prefix="proctor-receipt-") as scratch:
        raw, made = Path(scratch, "raw"), Path(scratch, "made")
        rows = store.attempts(info.id)
        attempts = write_raw(info, plan, rows, raw)
        data = RunData.from_folder(raw)
        write_run_documents(data, made)
        (raw / SERIES).rename(made / SERIES)
        head = document.head_of(data.info, plan.trials, attempts=attempts, proctor=installed_version())
        with _new_file(path) as sink, closing(Packer(sink)) as packer:
            packing = _Packing(packer, blobs, artifacts=artifacts)
            packing.folder(made)
            packing.trials(data.info, read_series(made, trials={each.key: each for each in plan.trials}))
            root = packing.close(head, sign)
    files = packing.files
    absent = sum(each.packed is None for each in files)
    return Packed(info, path, root, len(files), absent, path.stat().st_size)


class _Packing:
    """A receipt in the making."""

    def __init__(self, packer: Packer, blobs: Blobs, *, artifacts: bool) -> None:
        self._packer = packer
        self._blobs = blobs
        self._artifacts = artifacts
        self.files: list[File] = []

    def folder(self, made: Path) -> None:
        """The documents of the whole run."""
        paths = {str(each.relative_to(made)): each for each in made.rglob("*") if each.is_file()}
        for name in sorted(paths, key=order):
            with paths[name].open("rb") as source:
                self._add(name, source, paths[name].stat().st_size)

    def trials(self, info: RunInfo, rows: Iterable[AttemptRow]) -> None:
        """The documents and artifacts of each trial, one trial at a time."""
        writer = TrialDocuments(info)
        for _, attempts in groupby(rows, key=lambda row: row.trial.index):
            documents: dict[str, bytes] = {}
            artifacts: dict[str, Artifact] = {}
            for row in attempts:
                if row.counts:
                    documents |= writer.of(row.trial, row.record)
                paths = artifact_paths(row.trial, row.record)
                artifacts |= dict(zip(paths, row.record.artifacts, strict=True))
            for name in sorted({**artifacts, **documents}, key=order):
                if name in documents:
                    self._add(name, io.BytesIO(documents[name]), len(documents[name]))
                else:
                    self._artifact(name, artifacts[name])

    def close(self, head: Mapping[str, Any], sign: Callable[[str], Mapping[str, Any]] | None) -> str:
        """`receipt.json` and the end of the archive; the root."""
        text, root = document.write(head, self.files, sign)
        content = text.encode()
        # Not compressed: nothing else holds its digest, and a compressed file has bits that mean nothing.
        self._packer.add(document.NAME, io.BytesIO(content), len(content), deflate=False)
        self._packer.close()
        return root

    def _artifact(self, name: str, artifact: Artifact) -> None:
        wanted = self._artifacts or (is_evidence(artifact.name) and self._blobs.has(artifact.digest))
        if not wanted:
            self.files.append(File(name, artifact.digest, artifact.size_bytes))
            return
        with _blob(self._blobs, artifact, name) as source:
            if self._add(name, source, artifact.size_bytes) != artifact.digest:
                raise StoreError(f"{name}: the blob {artifact.digest} in the store is damaged")

    def _add(self, name: str, source: BinaryIO, size: int) -> str:
        try:
            written = self._packer.add(name, source, size)
        except ValueError as error:
            raise StoreError(f"{name}: {error}") from error
        self.files.append(File(name, written.sha256, written.size, written.packed))
        return written.sha256


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
        raise UsageError(f"{path}: already exists; choose another name or remove it first")
    make_folder(path.parent)
    beside = beside_of(path)
    try:
        with beside.open("w+b") as sink:
            yield sink
        beside.rename(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        beside.unlink(missing_ok=True)
