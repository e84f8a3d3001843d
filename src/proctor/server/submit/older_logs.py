"""The log of an older run: what agent and verifier printed, one after the other, as one text by range."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from proctor.render import trial_logs
from proctor.store.service.uploads import Upload
from proctor.store.store import Store

_PARTS = (".1", ".2")
MOST_BYTES = 1 << 20
"""How much one answer holds."""


def text(
    store: Store,
    upload: Upload,
    index: int,
    *,
    offset: int = 0,
    length: int = MOST_BYTES,
    tail: int | None = None,
) -> str:
    """A part of the log, or the end of it."""
    files = files_of(store, upload, index)
    if tail is not None:
        offset, length = max(0, sum(map(_size, files)) - tail), tail
    return b"".join(pieces(files, offset, length)).decode("utf-8", "replace")


def files_of(store: Store, upload: Upload, index: int) -> list[Path]:
    """The files of the newest attempt's logs, in the order in which they were written."""
    if upload.run_id is None:
        return []
    folder = Path(store.run(upload.run_id).folder)
    trial = next((each for each in store.planned(upload.run_id) if each.index == index), None)
    if trial is None:
        return []
    attempt = trial_logs.latest_attempt(folder, trial)
    if not attempt:
        return []
    found: list[Path] = []
    for log in trial_logs.logs_in(trial_logs.folder_of(folder, trial, attempt)):
        growing = [log.path.with_name(log.path.name + end) for end in _PARTS]
        found += [log.path, *sorted(filter(_size, growing), key=_written)]
    return found


def pieces(files: list[Path], offset: int, length: int) -> Iterator[bytes]:
    """Bytes of all files as if they were one; what is before the place is not read."""
    for path in files:
        size = _size(path)
        if offset >= size:
            offset -= size
            continue
        part = _read(path, offset, min(length, size - offset))
        offset, length = 0, length - len(part)
        yield part
        if length <= 0:
            return


def _read(path: Path, offset: int, length: int) -> bytes:
    """A link could lead anywhere, and is not followed."""
    try:
        handle = trial_logs.open_plain(path)
    except OSError:
        return b""
    try:
        return os.pread(handle, length, offset)
    finally:
        os.close(handle)


def _size(path: Path) -> int:
    return trial_logs.plain_size(path) or 0


def _written(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
