"""Hold two pictures against each other, artifact by artifact."""

from __future__ import annotations

import difflib
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from masks import PASSING_FILE, Masks, is_passing

LEVELS = {"static": "exact", "read": "exact", "executed": "loose", "measured": "answer"}
WORLD = {"results": "loose", "data": "loose", "out": "shape"}
"""Folders of the world that hold results; the rest is input, or the store's own."""
MEASURED = re.compile(
    r"data/rollouts/(perf|performance_tasks)/|results/.*\.md$|/perf\.json$|/psutil/series\.json$"
)
"""Results whose words follow from measured numbers."""
UNCOMPARED = ("out/time.json", PASSING_FILE)
"""Files whose presence or keys follow from measured numbers."""
HEADING = re.compile(r"^(?:[A-Z][^\d.]{0,50}|proctor/.*)$", re.MULTILINE)
"""Lines of a command's answer that depend on no number."""
MOST_LINES = 40
"""Of one artifact's differences."""
SLOWER = 1.25
"""From how many times the CPU time on a command's figure is printed."""


def compare(before: Path, after: Path) -> int:
    """Print the differences; 1 if there are any."""
    if facts(before)["world"] != facts(after)["world"]:
        print(f"{after} read other results than {before}: take it with --like {before}", file=sys.stderr)
        return 2
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
    document: dict[str, Any] = json.loads((picture / "picture.json").read_text())
    return document


def artifacts(picture: Path) -> dict[str, list[str]]:
    """Every artifact by its masked name, as lines that are to be equal."""
    masks = Masks(facts(picture), json.loads((picture / "runs.json").read_text()))
    lines: dict[str, list[str]] = {}
    for path in sorted(picture.rglob("*")):
        name = path.relative_to(picture).as_posix()
        level = _level(name)
        if not level or (path.is_dir() and not path.is_symlink()):
            continue
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for member, data in _members(name, content):
            masked = masks.exact(member) if level == "exact" else masks.loose(member)
            lines.setdefault(masked, []).extend(_lines(masks, level, member, data))
    return lines


def _level(name: str) -> str:
    top, _, rest = name.partition("/")
    if top != "world":
        return LEVELS.get(top, "")
    level = WORLD.get(rest.partition("/")[0], "")
    if not level or rest.endswith(UNCOMPARED):
        return ""
    return "shape" if MEASURED.search(rest) else level


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
        return [f"bytes, sha256 {sha256(content).hexdigest()}" if level == "exact" else "bytes"]
    if name == "read/api/metrics.json":  # its numbers say how fast requests were answered
        return re.findall(r"# (?:HELP|TYPE) .*?(?=\\n)", text)
    if name.endswith(".json"):
        return _json_lines(masks, level, [json.loads(text)])
    if name.endswith(".jsonl"):
        return _json_lines(masks, level, [json.loads(line) for line in text.splitlines()])
    return _text_lines(masks, level, name, text)


def _json_lines(masks: Masks, level: str, values: list[Any]) -> list[str]:
    mask = {"exact": masks.exact_value, "loose": masks.loose_value}.get(level, masks.shape)
    masked = [mask(value) for value in values]
    if level == "answer":
        masked[0] |= {"exit": values[0]["exit"], "command": values[0]["command"]}
    texts = [json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) for value in masked]
    return "\n".join(texts).replace("\\n", "\n  ").splitlines()


def _text_lines(masks: Masks, level: str, name: str, text: str) -> list[str]:
    page = name.endswith((".html", ".svg"))
    if level == "exact":
        masked = masks.exact(text)
        return (masked.replace("<", "\n<") if page else masked).splitlines()
    if page:
        return ["a page"]
    if level == "loose":  # a word per line: lines break where numbers are long
        return masks.loose("\n".join(line for line in text.splitlines() if not is_passing(line))).split()
    if level == "answer":
        return [*text.splitlines()[:2], *HEADING.findall(text)]
    return re.findall(r"^#+ .*", text, re.MULTILINE)


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
        print(f"  start of proctor {name}: {took:.3f} → {right['start_up_cpu_s'].get(name, 0):.3f} s")
    for name, took in left["cpu_s"].items():
        now = right["cpu_s"].get(name)
        if now is not None and now > took * SLOWER and now - took > 0.1:
            print(f"  {name}: {took:.2f} → {now:.2f} s")
    print(f"  all commands: {sum(left['cpu_s'].values()):.1f} → {sum(right['cpu_s'].values()):.1f} s")
