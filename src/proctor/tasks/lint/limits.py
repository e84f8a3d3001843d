"""Rules about a task's limits: what is hardly meant as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proctor.tasks.lint.findings import Finding, Subject

_HOUR_S = 3600.0
_SHORTEST_S = 5.0
_MB = 1 << 20
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*/[a-zA-Z0-9_][\w.-]*")


def sizes(subject: Subject) -> Iterator[Finding]:
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
        yield Finding(
            level="error",
            place=file,
            message=f"workdir '{environment.workdir}' is not an absolute path",
            hint="begin it with /",
        )
    if "/" in task.name and not _NAME.fullmatch(task.name):
        yield Finding(
            level="hint",
            place=file,
            message=f"[task] name '{task.name}' is not 'organisation/name'; Harbor refuses it",
            hint="use letters, digits, '-', '_' and '.' and one '/'",
        )


def _odd(file: str, what: str, hint: str) -> Finding:
    return Finding(level="warning", place=file, message=f"{what}: probably a mistake", hint=hint)
