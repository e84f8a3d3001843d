"""Files that `proctor ab` and `proctor time --export` write, as the documents that the web page shows.

A comparison is judged from its measurements again; of timings the file holds the document itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.engine import ab_file, time_file
from proctor.engine.ab_document import comparison
from proctor.errors import NotFoundError, UsageError
from proctor.model.document import to_mapping

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}\.json")
_HEAD_BYTES = 256
_MOST_BYTES = 64 << 20
_KINDS = {ab_file.KIND: "ab", time_file.KIND: "time"}
_KIND = re.compile(rb'"kind":\s*"([a-z.]+)"')


def timings_in(folder: Path) -> list[tuple[Path, str]]:
    """The files of a folder with what wrote each, newest first."""
    try:
        found = [(each.stat().st_mtime, each) for each in folder.glob("*.json") if NAME.fullmatch(each.name)]
    except OSError:
        return []
    return [(file, kind) for _, file in sorted(found, reverse=True) if (kind := _kind(file))]


def timing(folder: Path, name: str) -> Path:
    """The file of that name; NotFoundError when it is none of these."""
    file = folder / name
    if not NAME.fullmatch(name) or not _kind(file):
        raise NotFoundError(f"there is no saved timing '{name[:120]}'")
    return file


def timing_document(file: Path, *, drawn: bool) -> dict[str, Any]:
    """What a file says, as plain data; `drawn`: with its pictures."""
    if _kind(file) == "ab":
        return to_mapping(comparison(ab_file.read(file)), drawn=drawn)
    try:
        found = json.loads(read_small(file, _MOST_BYTES)).get("document")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{file.name}: cannot be read: {error}") from error
    if not isinstance(found, Mapping):
        raise UsageError(f"{file.name}: an older 'proctor time' wrote it, without a document; time it again")
    return dict(found)


def _kind(file: Path) -> str:
    """Which command wrote a file, by its first bytes; empty for any other file."""
    try:
        with file.open("rb") as opened:
            head = _KIND.search(opened.read(_HEAD_BYTES))
    except OSError:
        return ""
    return _KINDS.get(head[1].decode(), "") if head else ""
