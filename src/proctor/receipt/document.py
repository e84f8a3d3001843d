"""`receipt.json`: what was packed, with the digest of every file and one digest over all of it, the root.

The root covers the files that were left out too, so it is the same with and without artifacts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.errors import UsageError
from proctor.model.canonical import digest
from proctor.model.plan import PlannedTrial
from proctor.model.run import RunInfo
from proctor.runfolder.files import decode, encode

NAME = "receipt.json"
FORMAT = "proctor-receipt"
VERSION = 1
MAX_BYTES = 1 << 29
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEAD = ("format", "schema_version", "proctor", "run", "spec_digest", "plan_digest", "subjects")


@dataclass(frozen=True, slots=True)
class File:
    """One file of the run folder: what it must be."""

    path: str
    sha256: str
    size_bytes: int
    packed: str | None = None
    """The SHA-256 of its bytes as they are packed; None: left out of the archive, known by `sha256` alone."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The document, read or about to be written."""

    head: Mapping[str, Any]
    files: tuple[File, ...]
    root: str
    """As it is written there; `root_of` says what it should be."""
    signature: object = None
    """As it is written there, unchecked; None: not signed."""

    @property
    def proctor(self) -> str:
        """The version of Proctor that packed it."""
        return str(self.head["proctor"])


def head_of(info: RunInfo, planned: Iterable[PlannedTrial], *, attempts: int, proctor: str) -> dict[str, Any]:
    """What the run was: the facts that people quote beside the root."""
    subjects: dict[tuple[str, str], None] = {}
    trials = 0
    for trial in planned:
        subjects[trial.subject, trial.subject_digest] = None
        trials += 1
    return {
        "format": FORMAT,
        "schema_version": VERSION,
        "proctor": proctor,
        "run": {
            "id": info.id,
            "name": info.name,
            "kind": info.kind,
            "status": info.status.value,
            "trials": trials,
            "attempts": attempts,
        },
        "spec_digest": digest(info.resolved),
        "plan_digest": info.plan_digest,
        "subjects": [{"subject": name, "digest": known} for name, known in subjects],
    }


def root_of(head: Mapping[str, Any], files: Iterable[File]) -> str:
    """One digest over everything."""
    listed = [[each.path, each.sha256, each.size_bytes] for each in files]
    return digest({**{name: head.get(name) for name in _HEAD}, "files": listed})


def write(
    head: Mapping[str, Any], files: Iterable[File], sign: Callable[[str], Mapping[str, Any]] | None = None
) -> tuple[str, str]:
    """The document's text, a file per line, and the root; `sign` makes the signature of a root."""
    ordered = sorted(files, key=lambda each: each.path)
    root = root_of(head, ordered)
    signed = {"signature": dict(sign(root))} if sign else {}
    start = encode({**head, "root": root, **signed}, indent=True)[:-2]
    return f'{start},\n "files": [\n' + ",\n".join(map(_line, ordered)) + "\n ]\n}\n", root


def _line(file: File) -> str:
    plain = {"path": file.path, "sha256": file.sha256, "bytes": file.size_bytes, "packed": file.packed}
    return f"  {encode(plain)}"


def read(data: bytes, place: str) -> Receipt:
    """The document from a stranger, every field checked."""
    found = decode(data, place)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{place}: not the receipt of a run")
    version = found.get("schema_version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise UsageError(f"{place}: schema version {version!r:.40}; this Proctor reads up to {VERSION}")
    if not isinstance(found.get("run"), dict) or not isinstance(found.get("proctor"), str):
        raise UsageError(f"{place}: 'run' and 'proctor' are missing")
    files = found.get("files")
    if not isinstance(files, list) or not isinstance(found.get("root"), str):
        raise UsageError(f"{place}: 'files' and 'root' are missing")
    head = {name: found.get(name) for name in _HEAD}
    listed = tuple(_file(each, f"{place}: files[{at}]") for at, each in enumerate(files))
    try:
        root_of(head, listed)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: cannot be digested: {error}") from error
    return Receipt(head, listed, found["root"], found.get("signature"))


def _file(each: Any, place: str) -> File:
    if not isinstance(each, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    path, sha256, size, packed = (each.get(name) for name in ("path", "sha256", "bytes", "packed"))
    if not isinstance(path, str) or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise UsageError(f"{place}: a path and 64 hexadecimal digits are expected here")
    known = packed is None or (isinstance(packed, str) and _SHA256.fullmatch(packed))
    if type(size) is not int or size < 0 or "packed" not in each or not known:
        raise UsageError(f"{place}: 'bytes' and 'packed' are expected here")
    return File(path, sha256, size, packed)
