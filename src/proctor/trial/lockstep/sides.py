"""From what a person called two sides to everything their workers need: code, interpreter, parameters.

A side runs the code of one folder. What the project imports from itself, and the experiment, are looked up in
that folder at the same relative place; whatever lies outside the project is shared by both sides.
"""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.errors import ParamError, UsageError
from proctor.experiments.base import Registered
from proctor.experiments.describe import fitted
from proctor.experiments.suites.suite import SuiteBenchmark
from proctor.model.lockstep import PathsAlike
from proctor.processes import OF_PYTHON, host_environment
from proctor.trial.lockstep.process import MARSHAL, Side
from proctor.trial.lockstep.same_path import SeenSide, same_path
from proctor.trial.lockstep.worktree import Project, commit_of, is_clean, worktrees

_KINDS = ("rev", "path", "python", "params")
_FOLDER_PACKAGE = "proctor_folder_"
_OLDEST = (3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRequest:
    """One side as a person asked for it. At most one of `revision` and `folder`."""

    revision: str = ""
    folder: str = ""
    python: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_code(self) -> bool:
        """Whether it says which code to run."""
        return bool(self.revision or self.folder)

    @property
    def label(self) -> str:
        """What to call it in a report."""
        parts = [self.revision or self.folder, self.python and f"python:{self.python}"]
        if self.params:
            parts.append(",".join(f"{name}={value}" for name, value in self.params.items()))
        return " ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCode:
    """Where one side's code is."""

    name: str
    label: str
    root: Path
    python: str
    commit: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    seen: SeenSide | None = None
    """Where its processes see code and interpreter; None: where they are."""
    paths: PathsAlike = "same"
    scratch: str | None = None
    """A folder of the comparison, gone after it."""


def parse(texts: Sequence[str], option: str) -> SideRequest:
    """`HEAD~1`, `.`, `path:DIR`, `python:PATH`, `params:n=10,mode=x`, or several of them."""
    found: dict[str, Any] = {}
    for text in texts:
        kind, colon, value = text.partition(":")
        if not colon or kind not in _KINDS:
            kind, value = ("path" if text.startswith((".", "/", "~")) else "rev"), text
        if not value:
            raise UsageError(f"{option} '{text}': a value is missing after '{kind}:'")
        if kind == "params":
            found["params"] = {**found.get("params", {}), **parse_params(value, option)}
            continue
        name = {"rev": "revision", "path": "folder"}.get(kind, kind)
        if name in found or (name in {"revision", "folder"} and {"revision", "folder"} & found.keys()):
            raise UsageError(f"{option} '{text}': a side runs one version of the code in one environment")
        found[name] = value
    return SideRequest(**found)


def parse_params(text: str, option: str) -> dict[str, Any]:
    """`n=10,mode=x` or a JSON object. A value is JSON where it can be read as such, else text."""
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ParamError(f"{option} params: not a JSON object: {error}") from None
    params: dict[str, Any] = {}
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ParamError(f"{option} params:{text}: '{part}' is not NAME=VALUE")
        try:
            params[name.strip()] = json.loads(value)
        except ValueError:
            params[name.strip()] = value.strip()
    return params


def _split(text: str) -> list[str]:
    """At commas outside brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == '"'
        depth += 0 if quoted else (char in "[{") - (char in "]}")
        if char == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def complete(a: SideRequest, b: SideRequest) -> tuple[SideRequest, SideRequest]:
    """Fill in what was left out: the last commit against the working tree, unless something else differs."""
    other_difference = any(side.python or side.params for side in (a, b))
    if not b.has_code:
        b = replace(b, folder=".")
    if not a.has_code:
        same_code = replace(a, folder=b.folder, revision=b.revision)
        a = same_code if other_difference else replace(a, revision="HEAD")
    return a, b


@contextmanager
def placed(
    a: SideRequest, b: SideRequest, project: Project, python: str | None = None
) -> Iterator[tuple[tuple[SideCode, SideCode], list[str]]]:
    """Check out what must be checked out, show both sides at one path, and say what the person should know.

    `python` is the interpreter of a side that names none.
    """
    a, b = complete(a, b)
    with worktrees(project) as trees:
        codes = []
        for name, request in (("A", a), ("B", b)):
            commit, root = "", project.root
            if request.revision:
                commit = commit_of(project, request.revision)
                root = trees.check_out(commit, name.lower())
            elif request.folder != ".":
                root = _folder(request.folder, name)
            python = (
                interpreter(request.python, f"side {name}") if request.python else python or sys.executable
            )
            label = request.label + (f" ({commit[:10]})" if commit else "")
            codes.append(
                SideCode(
                    name=name, label=label, root=root, python=python, commit=commit, params=request.params
                )
            )
        first, second = codes
        pythons = (first.python, second.python)
        with same_path(trees.folder, (first.root, second.root), pythons) as seen:
            a_code, b_code = (
                replace(code, seen=where, paths=seen.paths, scratch=str(trees.folder))
                for code, where in ((first, seen.a), (second, seen.b))
            )
            yield (a_code, b_code), list(seen.notes)


def same_code(a: SideCode, b: SideCode, project: Project) -> bool:
    """Whether both sides are the same files by their names: one folder, or one commit."""
    if (a.python, a.params) != (b.python, b.params):
        return False
    if a.root == b.root or (a.commit and a.commit == b.commit):
        return True
    if not project.is_repository or project.root not in {a.root, b.root}:
        return False
    checked_out = {side.commit for side in (a, b) if side.root != project.root}
    return checked_out == {commit_of(project, "HEAD")} and is_clean(project)


def _folder(text: str, name: str) -> Path:
    folder = Path(text).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"side {name}: {text} is not a folder")
    return folder


def interpreter(text: str, asked: str) -> str:
    """The path of an interpreter, or of an environment's, that can run a side; `asked` begins the errors."""
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    # A link is kept: an environment is known by the path of its interpreter.
    python = os.path.abspath(path) if path.exists() else text  # noqa: PTH100
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=host_environment(*OF_PYTHON),
        )
        major, minor = map(int, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(f"{asked}: {text} is not a Python interpreter: {error}") from error
    if (major, minor) < _OLDEST:
        raise UsageError(f"{asked}: {text} is Python {major}.{minor}; 3.11 or later is needed")
    return python


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedExperiment:
    """What both sides run: the experiment, where it is looked for, and the project it belongs to."""

    registered: Registered
    sources: tuple[str, ...]
    project: Project
    seed: int = 0
    gc: bool = False
    installed: bool = False
    """Whether a side's code is what its interpreter has installed."""


def make_side(
    place: SideCode,
    other: SideCode,
    subject: ComparedExperiment,
    params: Mapping[str, Any],
    pycache: str = "",
) -> Side:
    """A side at one parameter point."""
    project, registered = subject.project, subject.registered
    module = registered.cls.__module__
    is_suite = issubclass(registered.cls, SuiteBenchmark)
    in_folder = module.startswith(_FOLDER_PACKAGE)
    sources = [moved(source, project, place.root) for source in subject.sources]
    file = moved(registered.file, project, place.root) if in_folder else ""
    direct = {str(Path(file).parent), file} & set(sources)
    cwd = moved(os.getcwd(), project, place.root)  # noqa: PTH109 - text in, text out
    return Side(
        name=place.name,
        label=place.label,
        python=place.python,
        root=str(place.root),
        slug=registered.slug,
        cwd=cwd if Path(cwd).is_relative_to(place.root) else str(place.root),
        path=() if subject.installed else _path(project, place.root, is_suite=is_suite),
        file=file if direct else "",
        module="" if in_folder else module,
        sources=tuple(sources),
        params={**params, **place.params},
        seed=subject.seed,
        gc=subject.gc,
        foreign=tuple(_foreign(place, other, project)),
        shared=tuple(sorted({str(Path(each).parent) if each.endswith(".py") else each for each in sources})),
        pycache=pycache,
        installed=subject.installed,
        seen=place.seen,
        paths=place.paths,
        scratch=place.scratch,
        recipe=_recipe(registered, {**params, **place.params}) if is_suite else "",
    )


def _path(project: Project, root: Path, *, is_suite: bool) -> tuple[str, ...]:
    """Folders to import from first. A suite's project may have its package right in its folder."""
    return (*_import_path(project, root), *([str(root)] if is_suite else ()))


def _recipe(registered: Registered, params: Mapping[str, Any]) -> str:
    """How a worker makes the experiment, found out here: the suite's interpreter may lack what checks it."""
    return marshal.dumps(fitted(registered, params), MARSHAL).hex()


def moved(path: str, project: Project, root: Path) -> str:
    """The same place below another root; itself when it is outside the project or not there."""
    if not os.path.isabs(path) or not Path(path).is_relative_to(project.root):  # noqa: PTH117 - text in, text out
        return path
    there = root / Path(path).relative_to(project.root)
    return str(there) if there.exists() else path


def _import_path(project: Project, root: Path) -> list[str]:
    """What this process imports from the project, moved to the side; then whatever PYTHONPATH adds."""
    installed = (sys.prefix, sys.base_prefix)
    own = [str(root / "src")] if (root / "src").is_dir() else []
    for entry in sys.path:
        inside = entry and Path(entry).is_relative_to(project.root)
        if inside and not any(Path(entry).is_relative_to(prefix) for prefix in installed):
            own.append(moved(entry, project, root))
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return list(dict.fromkeys([*own, *(moved(os.path.abspath(each), project, root) for each in others)]))  # noqa: PTH100


def _foreign(place: SideCode, other: SideCode, project: Project) -> list[str]:
    roots = {other.root} | ({project.root} if place.commit else set())
    return [str(root) for root in sorted(roots) if root != place.root and not place.root.is_relative_to(root)]
