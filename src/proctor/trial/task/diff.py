"""The agent's changes as a patch, from a saved state. The state is hostile: parsed, never unpacked."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.trial.task.state_tar import Member, members

MAX_FILE_BYTES = 1 << 20
MAX_PATCH_BYTES = 8 << 20
MAX_FILES = 2_000
_ODD = re.compile(r'[\x00-\x1f"\\\x7f\udc80-\udcff]')
WHITEOUT = ".wh."
"""How a layer marks a removed file."""

Base = Callable[[str], bytes | None]
"""The content of a path before the agent started; None when it did not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed under one folder."""

    patch: str
    counts: Mapping[str, int]
    """added, modified, deleted; left_out: files that were too large, binary or too many for the patch."""


def diff_state(state: Path | bytes, workdir: str, base: Base) -> Diff:
    """Compare every file of a saved state below `workdir` with what was there before."""
    parts: list[str] = []
    counts = {"added": 0, "modified": 0, "deleted": 0, "left_out": 0}
    size = 0
    prefix = workdir.strip("/")
    for member in members(state):
        path = posixpath.normpath("/" + member.name).lstrip("/")
        if not _below(path, prefix):
            continue
        change = _change(member, path[len(prefix) :].strip("/"), path, base)
        if change is None:
            continue
        kind, text = change
        counts[kind] += 1
        if not text or size + len(text) > MAX_PATCH_BYTES or len(parts) > MAX_FILES:
            counts["left_out"] += 1
            continue
        size += len(text)
        parts.append(text)
    return Diff(patch="".join(parts), counts=counts)


def _change(member: Member, name: str, path: str, base: Base) -> tuple[str, str] | None:
    """(kind, patch) of one member; None when it changed nothing that a patch shows."""
    folder, last = posixpath.split(name)
    if last.startswith(WHITEOUT) or member.kind == "device":
        gone = last.removeprefix(WHITEOUT)
        before = base(posixpath.join(posixpath.dirname(path), gone))
        if before is None:
            return None
        return "deleted", _patch(posixpath.join(folder, gone), before, None)
    if member.kind != "file":
        return None
    before = base(path)
    kind = "added" if before is None else "modified"
    if member.size > MAX_FILE_BYTES:
        return kind, ""
    after = member.read()
    return None if after == before else (kind, _patch(name, before, after))


def _patch(name: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff; empty for binary or very large content."""
    contents = (before or b"", after or b"")
    if any(len(each) > MAX_FILE_BYTES or b"\0" in each[:8192] for each in contents):
        return ""
    old, new = (each.decode(errors="replace").splitlines(keepends=True) for each in contents)
    lines: Iterable[str]
    if before is None and new:  # all of it is new: there is nothing to compare
        count = f",{len(new)}" if len(new) > 1 else ""
        lines = [
            "--- /dev/null\n",
            f"+++ {_quoted('b', name)}\n",
            f"@@ -0,0 +1{count} @@\n",
            *(f"+{line}" for line in new),
        ]
    else:
        target = "/dev/null" if after is None else _quoted("b", name)
        lines = difflib.unified_diff(old, new, _quoted("a", name), target)
    mode = (
        "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
    )
    header = f"diff --git {_quoted('a', name)} {_quoted('b', name)}\n{mode}"
    return header + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _quoted(side: str, name: str) -> str:
    """A path as git writes it: in quotes when it has a byte that is not UTF-8 or would end the line."""
    place = f"{side}/{name}"
    if not _ODD.search(place):
        return place
    return '"' + _ODD.sub(lambda found: _escaped(found[0]), place) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))


def _below(path: str, prefix: str) -> bool:
    return not prefix or path.startswith(f"{prefix}/")
