"""Keep the files that an experiment and its instruments left, as artifacts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import StoreError
from proctor.model.record import Artifact
from proctor.store.blobs import Blobs
from proctor.trial.redact import NOTHING_SECRET, Redactor
from proctor.trial.redact_files import clean_folder

MAX_ARTIFACTS = 200
MAX_ARTIFACT_BYTES = 256 << 20
_MEDIA_TYPES = {
    ".html": "text/html",
    ".json": "application/json",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


def keep_files(
    folder: Path, blobs: Blobs, redactor: Redactor = NOTHING_SECRET
) -> tuple[list[Artifact], list[str]]:
    """Every plain file below, up to a limit, and a note for what was not kept. Links are not followed.

    Secrets are taken out of the files themselves first.
    """
    clean_folder(folder, redactor)
    kept: list[Artifact] = []
    notes: list[str] = []
    left_bytes = MAX_ARTIFACT_BYTES
    for name, path, size in sorted(_files(folder)):
        if len(kept) >= MAX_ARTIFACTS or size > left_bytes:
            notes.append(f"files above the artifact limit were not saved, starting with '{name}'")
            break
        left_bytes -= size
        try:
            kept.append(blobs.put_file(path, name, _MEDIA_TYPES.get(path.suffix, "application/octet-stream")))
        except (OSError, StoreError) as error:
            notes.append(f"'{name}' could not be saved: {error}")
    return kept, notes


def _files(folder: Path) -> Iterator[tuple[str, Path, int]]:
    for place, _, names in os.walk(folder):
        for each in names:
            path = Path(place, each)
            try:
                found = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield path.relative_to(folder).as_posix(), path, found.st_size
