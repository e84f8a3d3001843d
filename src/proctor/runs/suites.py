"""Suites of pytest-benchmark and asv as specs: what a suite has is asked in its own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from proctor.errors import UsageError
from proctor.experiments.suites import asv_case, listing
from proctor.experiments.suites.asv_benchmark import AsvBenchmark
from proctor.experiments.suites.pytest_benchmark import PytestBenchmark
from proctor.model.spec import Spec
from proctor.processes import full_environment
from proctor.spec.grammar import safe_name
from proctor.spec.load import from_mapping
from proctor.trial.lockstep.sides import interpreter
from proctor.trial.lockstep.worktree import Project, find_project

Kind = Literal["pytest", "asv"]
_CLASSES = {"pytest": PytestBenchmark, "asv": AsvBenchmark}
_SLUGS = {"pytest": "pytest_benchmark", "asv": "asv_benchmark"}
_PARAMS = {"pytest": ("file", "test", "group"), "asv": ("suite", "name", "case")}
_WHAT = {"pytest": "test that uses the fixture 'benchmark'", "asv": "benchmark"}
_LISTING_TIMEOUT_S = 600.0
_LAST_WORDS = 2000
TIMED = ("time", "timeraw")
ITERATIONS = {"warmup": "auto", "measured": "auto", "max_time_s": 5.0}
"""How long a benchmark of a suite is measured, unless the person says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The suites that a person named."""

    kind: Kind
    paths: tuple[str, ...]
    python: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    installed: bool = False
    """Whether the code is what the interpreter has installed, and not the project's folder."""

    @property
    def option(self) -> str:
        """How it was asked for."""
        return f"--{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What a suite has, and what is to be said about it."""

    asked: SuiteRequest
    project: Project
    python: str
    benchmarks: tuple[Mapping[str, Any], ...]
    broken: tuple[str, ...] = ()
    """Files that could not be imported, each with its error."""
    notes: tuple[str, ...] = ()

    def spec(self, name: str = "", overrides: Sequence[str] = ()) -> Spec:
        """One parameter point for each benchmark; those of a file, or the cases of one, are a sweep."""
        slug = _SLUGS[self.asked.kind]
        bodies = [
            {"experiment": slug, "params": dict(shared), "sweep": {axis: values}}
            for (axis, shared), values in self._sweeps().items()
        ]
        data: dict[str, Any] = {
            "name": name or safe_name(f"{self.project.root.name}-{self.asked.kind}"),
            "notes": "\n".join((*self.broken, *self.notes)),
            "iterations": ITERATIONS,
            "loops": "auto",
            "experiments": bodies,
        }
        if self.python != sys.executable:
            data["python"] = self.python
        return from_mapping(data, base_dir=str(self.project.root), overrides=overrides)

    def _sweeps(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], list[str]]:
        """Which parameter varies and what the others are → its values."""
        found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
        for each in self.benchmarks:
            axis = "test" if self.asked.kind == "pytest" else "case" if each["case"] else "name"
            shared = {key: each[key] for key in _PARAMS[self.asked.kind] if key != axis and each[key]}
            values = found.setdefault((axis, tuple(shared.items())), [])
            if each[axis] not in values:
                values.append(each[axis])
        return found

    def timed(self) -> Suite:
        """Only what measures time; the note says what was left out."""
        others = [each for each in self.benchmarks if each.get("kind", "time") not in TIMED]
        if not others:
            return self
        kinds = ", ".join(sorted({f"{each['kind']}_*" for each in others}))
        note = (
            f"{len(others)} of the benchmarks give a number instead of a time ({kinds}) and are left out "
            "here; measure both versions with 'proctor run --asv' and compare the runs with 'proctor compare'"
        )
        kept = tuple(each for each in self.benchmarks if each not in others)
        if not kept:
            raise UsageError(note)
        return replace(self, benchmarks=kept, notes=(*self.notes, note))


def request_from(
    pytest: Sequence[str],
    asv: Sequence[str],
    python: str | None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> SuiteRequest | None:
    """The suites of a command line; None when there are none."""
    if pytest and asv:
        raise UsageError("--pytest and --asv cannot be combined: measure one suite at a time")
    if not pytest and not asv:
        if python:
            raise UsageError("--python goes with --pytest or --asv; a spec says 'python' for its experiments")
        return None
    return SuiteRequest(
        kind="pytest" if pytest else "asv",
        paths=tuple(pytest or asv),
        python=python,
        include=tuple(include),
        exclude=tuple(exclude),
    )


def read_suite(asked: SuiteRequest) -> Suite:
    """Ask the suite's interpreter what the suite has. Nothing is measured."""
    files = [each.partition("::")[0] for each in asked.paths]
    for path in files:
        if not Path(path).exists():
            raise UsageError(f"{asked.option} {path}: no such file or folder")
    first = Path(files[0]).resolve()
    project = find_project(first if first.is_dir() else first.parent)
    if outside := [each for each in files if not Path(each).resolve().is_relative_to(project.root)]:
        raise UsageError(f"{asked.option} {outside[0]}: not in the project of {files[0]}, {project.root}")
    python = interpreter(asked.python, "--python") if asked.python else sys.executable
    listed = _listed(asked, project, python)
    broken = tuple(f"{where}: {error}" for where, error in listed["broken"])
    chosen = [each for each in listed["found"] if _wanted(_CLASSES[asked.kind].label_of(each), asked)]
    runnable = tuple(each for each in chosen if not each.get("skip"))
    if not runnable:
        raise UsageError(_nothing(asked, listed, broken))
    return Suite(
        asked=asked,
        project=project,
        python=python,
        benchmarks=runnable,
        broken=tuple(f"not loaded: {each}" for each in broken),
        notes=tuple(_notes(listed, chosen)),
    )


def _listed(asked: SuiteRequest, project: Project, python: str) -> dict[str, Any]:
    paths = [_absolute(each) for each in asked.paths]
    with tempfile.TemporaryDirectory(prefix="proctor-suite-") as folder:
        proctor = str(Path(listing.__file__).parents[2])
        code = "installed" if asked.installed else "project"
        where = [proctor, asked.kind, code, str(project.root), folder]
        command = [python, "-P", listing.__file__, *where, *paths]
        try:
            done = subprocess.run(
                command,
                cwd=project.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LISTING_TIMEOUT_S,
                check=False,
                env=full_environment(),
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{asked.option} {asked.paths[0]}: importing it took more than {_LISTING_TIMEOUT_S:g} s"
            ) from None
    said = done.stderr.decode(errors="replace").strip()[-_LAST_WORDS:]
    try:
        listed: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    except (ValueError, IndexError):
        listed = {"refused": f"the process ended with exit code {done.returncode}"}
    if "missing" in listed:
        raise UsageError(
            f"{listed['missing']} is not installed for {python}: install it there, or name the suite's "
            "interpreter with --python"
        )
    if "refused" in listed:
        raise UsageError(f"{asked.option} {asked.paths[0]}: {listed['refused']}\n{said}".rstrip())
    return listed


def _absolute(path: str) -> str:
    """A path, or `path::test`, that means the same from every folder."""
    file, colons, test = path.partition("::")
    return f"{Path(file).resolve()}{colons}{test}"


def _wanted(label: str, asked: SuiteRequest) -> bool:
    def matches(pattern: str) -> bool:
        return pattern in label or fnmatchcase(label, pattern)

    included = not asked.include or any(map(matches, asked.include))
    return included and not any(map(matches, asked.exclude))


def _nothing(asked: SuiteRequest, listed: Mapping[str, Any], broken: Sequence[str]) -> str:
    where = " ".join(asked.paths)
    if listed["found"] and (asked.include or asked.exclude):
        return f"{asked.option} {where}: none of its {len(listed['found'])} benchmarks matches the patterns"
    lines = [f"{asked.option} {where}: no {_WHAT[asked.kind]} was found"]
    lines += [f"  not loaded: {each}" for each in broken]
    skipped = [(each["test"], each["skip"]) for each in listed["found"] if each.get("skip")]
    lines += [f"  skipped: {name}: {reason}" for name, reason in (*listed["skipped"], *skipped)]
    return "\n".join(lines)


def _notes(listed: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"skipped: {name}: {reason}" for name, reason in listed["skipped"])
    yield from (f"skipped: {each['test']}: {each['skip']}" for each in chosen if each.get("skip"))
    unused = sorted({key for each in chosen for key in each["not_used"]} | set(listed["options"]))
    if unused:
        yield (
            f"set by the suite and not used: {', '.join(unused)}. How often and how long a benchmark is "
            "measured is decided here"
        )


@contextmanager
def cache_of_setup() -> Iterator[None]:
    """A folder in which the processes of one command share what `setup_cache` of an asv suite has made."""
    before = os.environ.get(asv_case.CACHE)
    with tempfile.TemporaryDirectory(prefix="proctor-suite-", ignore_cleanup_errors=True) as folder:
        os.environ[asv_case.CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(asv_case.CACHE)
            if before is not None:
                os.environ[asv_case.CACHE] = before
