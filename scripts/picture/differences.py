"""Hold two pictures against each other, artifact by artifact."""

from __future__ import annotations

import difflib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from masks import Masks

LEVELS = {"static": "exact", "read": "exact", "executed": "loose", "world": "loose", "measured": "shape"}
RESULTS = ("results", "data", "out")
"""Folders of the world that hold results; the rest is input, or the store's own."""
MOST_LINES = 40
"""Of one artifact's differences."""
SLOWER = 1.25
"""From how many times the CPU time on a command's figure is printed."""


def compare(before: Path, after: Path) -> int:
    """Print the differences; 1 if there are any."""
    if facts(before)["world"] != facts(after)["world"]:
        sys.exit(f"{after} read other results than {before}: take it with --like {before}")
    left, right = artifacts(before), artifacts(after)
    different = 0
    for name in sorted(left.keys() | right.keys()):
        lines = list(_difference(left.get(name), right.get(name)))
        if lines:
            different += 1
            print(f"\n=== {name}")
            print("\n".join(line[:400] for line in lines[:MOST_LINES]))
            if len(lines) > MOST_LINES:
                print(f"… and {len(lines) - MOST_LINES} more lines")
    _figures(before, after)
    print(f"\n{len(left)} artifacts before, {len(right)} after; {different} differ")
    return 1 if different else 0


def facts(picture: Path) -> dict[str, Any]:
    """When and of what the picture was taken."""
    found: dict[str, Any] = json.loads((picture / "picture.json").read_text())
    return found


def artifacts(picture: Path) -> dict[str, list[str]]:
    """Every artifact by its masked name, as lines that are to be equal."""
    masks = Masks(facts(picture), json.loads((picture / "runs.json").read_text()))
    found: dict[str, list[str]] = {}
    for path in sorted(picture.rglob("*")):
        name = path.relative_to(picture)
        level = LEVELS.get(name.parts[0])
        if level is None or path.is_dir() or (name.parts[0] == "world" and name.parts[1] not in RESULTS):
            continue
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for member, data in _members(str(name), content):
            masked = masks.loose(member) if level == "loose" else masks.exact(member)
            assert masked not in found, masked
            found[masked] = _lines(masks, level, member, data)
    return found


def _members(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The file, or what is in it if it is an archive."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for item in archive.infolist():
                yield from _members(f"{name}!{item.filename}", archive.read(item))
    elif name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for entry in archive:
                stream = archive.extractfile(entry) if entry.isfile() else None
                yield f"{name}!{entry.name}", stream.read() if stream else b""
    else:
        yield name, content


def _lines(masks: Masks, level: str, name: str, content: bytes) -> list[str]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return [f"{len(content)} bytes, sha256 {sha256(content).hexdigest()}" if level == "exact" else "bytes"]
    if name.endswith((".json", ".jsonl")):
        values = [json.loads(text)] if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        mask = {"exact": masks.exact_value, "loose": masks.loose_value, "shape": masks.shape}[level]
        masked = [mask(value) for value in values]
        if level == "shape" and name.startswith("measured/"):
            masked = [{**masked[0], "exit": values[0]["exit"], "command": values[0]["command"]}]
        return [line for value in masked for line in _pretty(value)]
    if level == "exact":
        return masks.exact(text).splitlines()
    if level == "shape":
        return text.splitlines()[:2]
    return _words(masks, name, text)


def _pretty(value: Any) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def _words(masks: Masks, name: str, text: str) -> list[str]:
    """A word per line, as lines break where numbers are long. Charts and pages: that they are there."""
    if name.endswith((".html", ".svg")):
        return ["a page"]
    return masks.loose(text).split()


def _difference(before: list[str] | None, after: list[str] | None) -> Iterator[str]:
    if before is None or after is None:
        yield "only after" if before is None else "only before"
    elif before != after:
        yield from list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=3))[2:]


def _figures(before: Path, after: Path) -> None:
    """CPU time, for information: one look at each command, on a machine that may be busy."""
    left, right = (json.loads((side / "figures.json").read_text()) for side in (before, after))
    print("\nCPU time, before → after (not part of the verdict)")
    for name, took in left["start_up_cpu_s"].items():
        print(f"  start of proctor {name}: {took * 1000:.0f} → {right['start_up_cpu_s'].get(name, 0) * 1000:.0f} ms")
    for name, took in left["cpu_s"].items():
        now = right["cpu_s"].get(name)
        if now is not None and now > took * SLOWER and now - took > 0.1:
            print(f"  {name}: {took:.2f} → {now:.2f} s")
    print(f"  all commands: {sum(left['cpu_s'].values()):.1f} → {sum(right['cpu_s'].values()):.1f} s")
