"""The digest of an experiment's source: its own file and the neighbours it imports. No path enters it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from proctor.experiments.base import Registered

_BUILT_IN = Path(__file__).parent
_FRAMEWORK = frozenset(
    _BUILT_IN / name for name in ("base.py", "describe.py", "discover.py", "schema.py", "source.py")
)


def source_digest(registered: Registered) -> str:
    """Changes when the class's file, or a file beside it that it imports, does. The same on any machine."""
    whole = hashlib.sha256(f"{registered.slug}\0{registered.cls.__qualname__}\0".encode())
    start = Path(registered.file)
    # Built-in experiments of one room use what is in another: the world, its log.
    root = _BUILT_IN if start.is_relative_to(_BUILT_IN) else start.parent
    for file in sorted(source_files(start, root)):
        name = file.relative_to(root).as_posix()
        content = file.read_bytes().replace(b"\r\n", b"\n")
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def source_files(start: Path, root: Path) -> set[Path]:
    """The file and whatever it imports from below `root`, directly or through others of them."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file in found or file in _FRAMEWORK or not file.is_file():
            continue
        found.add(file)
        waiting += _neighbours(file, root)
    return found


def _neighbours(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, _own_parts(alias.name, root))
        elif isinstance(node, ast.ImportFrom):
            base = file.parent
            for _ in range(node.level - 1):
                base = base.parent
            if not node.level:
                base = root
            if base != root and root not in base.parents:
                continue
            parts = _own_parts(node.module or "", root) if not node.level else (node.module or "").split(".")
            parts = [part for part in parts if part]
            yield from _files(base, parts)
            for alias in node.names:
                yield from _files(base, [*parts, alias.name])


def _own_parts(module: str, root: Path) -> list[str]:
    """A module's name from the folder downwards: `proctor.experiments.x` is `x` in `proctor/experiments`."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if tuple(parts[:length]) == root.parts[-length:]:
            return parts[length:]
    return parts


def _files(base: Path, parts: list[str]) -> Iterator[Path]:
    """The files that importing `parts` from `base` executes."""
    for length in range(1, len(parts) + 1):
        target = base.joinpath(*parts[:length])
        yield target / "__init__.py"
        yield target.with_name(f"{target.name}.py")
