"""Rules about secrets: values that a task's files hold, and variables of the machine that it asks for.

A value in the author's own files is the author's: it is part of the task, so it is not taken out of logs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from proctor.model.secret import OWN_PREFIX, VARIABLE, holds_credential, looks_secret, token_in
from proctor.tasks.lint.findings import MAX_TEXT_BYTES, Finding, Subject

_SETS = re.compile(
    r"^\s*(?:(?:ENV|ARG|export)\s+)?(?P<name>[A-Za-z_]\w*)(?:\s*=\s*|\s+)[\"']?(?P<value>[^\s\"'#]+)",
)
_INSTRUCTION = re.compile(r"\s*(?:ENV|ARG)\s", re.IGNORECASE)
_EXAMPLES = re.compile(r"changeme|example|placeholder|dummy|fake|test|your[-_]|xxx|<|\.\.\.", re.IGNORECASE)
_HINT = "everybody who has the task can read it: use ${NAME} and let people grant it with pass_env"


def variables(subject: Subject) -> Iterator[Finding]:
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


def _variable(file: str, table: str, name: str, value: str) -> Iterator[Finding]:
    match = VARIABLE.fullmatch(value)
    if match and match["name"].startswith(OWN_PREFIX):
        yield Finding(
            level="error" if match["default"] is None else "warning",
            place=file,
            message="a variable asks for a setting of Proctor's own, which no task gets",
            detail=f"[{table}] {name}",
            hint="ask for a variable of another name",
        )
    elif match and match["default"] is None:
        yield Finding(
            level="hint",
            place=file,
            message="a variable comes from the machine: whoever runs the task must grant it",
            detail=f"[{table}] {name} = ${{{match['name']}}}",
            hint=f"say so in the README, or give a default as ${{{match['name']}:-default}}",
        )
    elif not match and _is_secret(name, value):
        yield _literal(file, f"[{table}] {name}")


def literals(subject: Subject) -> Iterator[Finding]:
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


def _in_dockerfile(path: Path, text: str) -> Iterator[Finding]:
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


def _literal(place: str, what: str) -> Finding:
    return Finding(
        level="warning",
        place=place,
        message="a secret is written in the task itself",
        detail=what,
        hint=_HINT,
    )


def _texts(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each != ".git")
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_TEXT_BYTES:
                yield path
