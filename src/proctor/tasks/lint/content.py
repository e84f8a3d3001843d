"""Rules about what a task holds: links, large files, overrides, limits, and secrets.

A secret in the author's own files is the author's: it is part of the task, so it is not taken out of logs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from proctor.errors import TaskError
from proctor.model.secret import OWN_PREFIX, VARIABLE, holds_credential, looks_secret, token_in
from proctor.tasks.lint.problems import MAX_TEXT_BYTES, Problem, ReviewedTask, from_text, line_with
from proctor.tasks.overrides import load_overrides

LARGE_BYTES = 50 << 20
_INPUTS = ("tests", "solution", "steps")
_HOUR_S = 3600.0
_SHORTEST_S = 5.0
_MB = 1 << 20
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*/[a-zA-Z0-9_][\w.-]*")
_SETS = re.compile(
    r"^\s*(?:(?:ENV|ARG|export)\s+)?(?P<name>[A-Za-z_]\w*)(?:\s*=\s*|\s+)[\"']?(?P<value>[^\s\"'#]+)",
)
_INSTRUCTION = re.compile(r"\s*(?:ENV|ARG)\s", re.IGNORECASE)
_EXAMPLES = re.compile(r"changeme|example|placeholder|dummy|fake|test|your[-_]|xxx|<|\.\.\.", re.IGNORECASE)
_HINT = "everybody who has the task can read it: use ${NAME} and let people grant it with pass_env"
_TABLE = re.compile(r"\[verifier\.performance\]")
_SEED = "PROCTOR_SEED"


def overrides(subject: ReviewedTask) -> Iterator[Problem]:
    """`overrides.json`, which nothing reads before a run."""
    file = subject.task.path / "overrides.json"
    if file.is_file():
        try:
            load_overrides(file)
        except TaskError as error:
            yield from_text("error", str(error), subject.task.path)


def files(subject: ReviewedTask) -> Iterator[Problem]:
    """Links and large files."""
    root = subject.task.path
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_symlink():
                yield _link(Path(entry.path), root)
            elif entry.is_dir():
                waiting += [entry.path] if entry.name != ".git" else []
            elif entry.is_file() and (size := entry.stat().st_size) > LARGE_BYTES:
                yield Problem(
                    "warning",
                    entry.path,
                    "a large file, part of every copy of the task",
                    detail=f"{size >> 20} MB",
                    hint="make or fetch it when the image is built",
                )


def _link(path: Path, root: Path) -> Problem:
    leads_out = not path.resolve().is_relative_to(root.resolve())
    if leads_out and path.relative_to(root).parts[0] in _INPUTS:
        return Problem(
            "error",
            str(path),
            "a link to something outside the task, which is not copied with it",
            hint="put the file itself here",
        )
    return Problem(
        "warning", str(path), "a link: it is lost when the task is packed", hint="put the file itself here"
    )


def sizes(subject: ReviewedTask) -> Iterator[Problem]:
    """Times, sizes and places."""
    task = subject.task
    file = str(task.path / "task.toml")
    agents = [step.agent.timeout_s for step in task.steps] or [task.agent.timeout_s]
    verifiers = [step.verifier.timeout_s for step in task.steps] or [task.verifier.timeout_s]
    for table, times_s, most_s in (("agent", agents, 24 * _HOUR_S), ("verifier", verifiers, 6 * _HOUR_S)):
        odd = [each for each in times_s if not _SHORTEST_S <= each <= most_s]
        if odd:
            yield _odd(file, f"[{table}] timeout_sec is {odd[0]:g} s", "it is in seconds")
    environment = task.environment
    if environment.memory_bytes is not None and environment.memory_bytes < 32 * _MB:
        yield _odd(file, f"memory is {environment.memory_bytes / _MB:g} MB", "memory_mb is in megabytes")
    if environment.storage_bytes is not None and environment.storage_bytes < 16 * _MB:
        yield _odd(file, f"storage is {environment.storage_bytes / _MB:g} MB", "storage_mb is in megabytes")
    if environment.workdir and not environment.workdir.startswith("/"):
        yield Problem(
            "error", file, f"workdir '{environment.workdir}' is not an absolute path", hint="begin it with /"
        )
    if "/" in task.name and not _NAME.fullmatch(task.name):
        yield Problem(
            "hint",
            file,
            f"[task] name '{task.name}' is not 'organisation/name'; Harbor refuses it",
            hint="use letters, digits, '-', '_' and '.' and one '/'",
        )


def _odd(file: str, what: str, hint: str) -> Problem:
    return Problem("warning", file, f"{what}: probably a mistake", hint=hint)


def variables(subject: ReviewedTask) -> Iterator[Problem]:
    """Tables of variables in task.toml."""
    task = subject.task
    file = str(task.path / "task.toml")
    verifiers = [step.verifier for step in task.steps] or [task.verifier]
    tables: list[tuple[str, Mapping[str, str]]] = [
        ("environment.env", task.environment.env),
        ("solution.env", task.solution_env),
        *(("verifier.env", each.env) for each in verifiers),
        *(("verifier.environment.env", each.environment.env) for each in verifiers if each.environment),
    ]
    for table, values in tables:
        for name, value in values.items():
            yield from _variable(file, table, name, value)


def _variable(file: str, table: str, name: str, value: str) -> Iterator[Problem]:
    match = VARIABLE.fullmatch(value)
    if match and match["name"].startswith(OWN_PREFIX):
        yield Problem(
            "error" if match["default"] is None else "warning",
            file,
            "a variable asks for a setting of Proctor's own, which no task gets",
            detail=f"[{table}] {name}",
            hint="ask for a variable of another name",
        )
    elif match and match["default"] is None:
        yield Problem(
            "hint",
            file,
            "a variable comes from the machine: whoever runs the task must grant it",
            detail=f"[{table}] {name} = ${{{match['name']}}}",
            hint=f"say so in the README, or give a default as ${{{match['name']}:-default}}",
        )
    elif not match and _is_secret(name, value):
        yield _literal(file, f"[{table}] {name}")


def literals(subject: ReviewedTask) -> Iterator[Problem]:
    """Tokens and private keys in any text file, and secret variables of Dockerfiles."""
    for path in _texts(subject.task.path):
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        place = token_in(text)
        if place is not None:
            yield _literal(f"{path}:{text.count(chr(10), 0, place) + 1}", "a token or a private key")
        if path.name.startswith("Dockerfile"):
            yield from _in_dockerfile(path, text)


def _in_dockerfile(path: Path, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.splitlines(), 1):
        found = _SETS.match(line) if _INSTRUCTION.match(line) else None
        if found and "$" not in found["value"] and _is_secret(found["name"], found["value"]):
            yield _literal(f"{path}:{number}", found["name"])


def _is_secret(name: str, value: str) -> bool:
    return (
        len(value) >= 8
        and (looks_secret(name, value) or holds_credential(value))
        and not _EXAMPLES.search(value)
    )


def _literal(place: str, what: str) -> Problem:
    return Problem("warning", place, "a secret is written in the task itself", detail=what, hint=_HINT)


def _texts(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each != ".git")
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_TEXT_BYTES:
                yield path


def performance(subject: ReviewedTask) -> Iterator[Problem]:
    """`[verifier.performance]`; that it has a reference is checked when the task is read."""
    spec = subject.task.verifier.performance
    if spec is None:
        return
    file = subject.task.path / "task.toml"
    found = line_with(_TABLE, subject.text(file))
    place = f"{file}:{found[0]}" if found else str(file)
    if not spec.inputs and _SEED not in spec.command:
        yield Problem(
            "warning",
            place,
            "every round has the same input, so a program may hold its answer",
            hint=f"make the input of a round from {_SEED}: with 'inputs', or in the command",
        )
    if spec.metric == "custom" and "/tests/" not in spec.command:
        yield Problem(
            "warning",
            place,
            "the number comes from the measured program itself, which may write what it likes",
            hint="let a script of tests/ run the program and write the number",
        )
