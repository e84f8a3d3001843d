"""Look over task folders as a reviewer would: what is wrong, what will bite later, what is not proven."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.errors import TaskError
from proctor.model.task import Task
from proctor.tasks.dataset import is_task
from proctor.tasks.overrides import load_overrides
from proctor.tasks.read import read_task

Proofs = Callable[[str, str], Mapping[str, set[str]]]
"""(name, digest) → agent → the outcomes it had on this very task."""

_PLACE = re.compile(r"^(?P<place>[^\s:][^:]*(?::\d+)?): (?P<message>.*)$", re.DOTALL)
_FETCHES = re.compile(r"\b(curl|wget|apt-get|apt|pip3? install|uv|uvx|npm install|git clone)\b")
_LARGE_BYTES = 50 << 20
_SHORT_INSTRUCTION = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know about a task."""

    level: Literal["error", "warning"]
    place: str
    """File and, where it is known, line."""
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found in one task."""

    name: str
    path: Path
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        """What keeps the task from being run."""
        return [finding for finding in self.findings if finding.level == "error"]


def check_folders(folder: Path, *, proofs: Proofs | None = None) -> list[Report]:
    """The task in a folder, or all tasks one level down."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder")
    if is_task(folder):
        return [check_task(folder, proofs=proofs)]
    found = [each for each in sorted(folder.iterdir()) if each.is_dir() and not each.name.startswith(".")]
    if not any(is_task(each) for each in found):
        raise TaskError(f"{folder}: no task in it; a task folder has a task.toml")
    return [check_task(each, proofs=proofs) for each in found]


def check_task(folder: Path, *, proofs: Proofs | None = None) -> Report:
    """Everything that can be said about one task without running it."""
    try:
        task = read_task(folder)
    except TaskError as error:
        return Report(name=folder.name, path=folder, findings=(_from_text("error", str(error), folder),))
    findings = [
        *(_from_text("warning", warning, folder) for warning in task.warnings),
        *_instruction(task),
        *_tests(task),
        *_solution(task),
        *_image(task),
        *_overrides(task),
        *_files(task),
        *(_proven(task, proofs) if proofs else ()),
    ]
    ordered = sorted(findings, key=lambda finding: finding.level)
    return Report(name=task.name, path=folder, findings=tuple(ordered))


def _from_text(level: Literal["error", "warning"], text: str, folder: Path) -> Finding:
    """A message that begins with its place, and may end with a hint."""
    match = _PLACE.match(text)
    place, message = (match["place"], match["message"]) if match else (str(folder), text)
    said, _, hint = message.partition("; ")
    return Finding(level=level, place=place, message=said, hint=hint)


def _warn(place: Path | str, message: str, hint: str = "") -> Finding:
    return Finding(level="warning", place=str(place), message=message, hint=hint)


def _instruction(task: Task) -> Iterator[Finding]:
    texts = {step.name: step.instruction for step in task.steps} or {"": task.instruction}
    for name, text in texts.items():
        file = task.path / "steps" / name / "instruction.md" if name else task.path / "instruction.md"
        if len(text.strip()) < _SHORT_INSTRUCTION:
            yield _warn(file, "the instruction is hardly a sentence", "say what is to be done, and where")
        for number, line in enumerate(text.splitlines(), 1):
            if "/tests/" in line or "/solution/" in line:
                yield _warn(
                    f"{file}:{number}",
                    "names /tests or /solution, which the agent cannot see",
                    "describe the wanted result instead",
                )


def _scripts(task: Task) -> Iterator[Path]:
    folders = [step.tests for step in task.steps if step.tests] or [task.path / "tests"]
    for folder in dict.fromkeys(folders):
        yield from sorted(folder.glob("*.sh"))


def _tests(task: Task) -> Iterator[Finding]:
    scripts = list(_scripts(task))
    rewarded = False
    for script in scripts:
        text = _read(script)
        if "\r\n" in text:
            yield Finding(
                level="error",
                place=str(script),
                message="Windows line ends: the shell takes them for part of the commands",
                hint="convert the file to plain newlines",
            )
        if text and not text.startswith("#!"):
            yield _warn(f"{script}:1", "no #! line", "begin with #!/bin/bash")
        rewarded = rewarded or "reward" in text
        if task.environment.network in {None, "none"} and (found := _line_with(_FETCHES, text)):
            number, word = found
            yield _warn(
                f"{script}:{number}",
                f"'{word}' needs the network, which the task does not have",
                "bring what the tests need in the image, or ask for network_mode",
            )
    files = [file for script in scripts for file in script.parent.rglob("*") if file.is_file()]
    if scripts and not task.rubrics and not rewarded and not any("reward" in _read(file) for file in files):
        yield _warn(
            scripts[0],
            "nothing here mentions a reward: the verifier will end without one",
            "write 1 or 0 to /logs/verifier/reward.txt",
        )
    for rubric in task.rubrics:
        if not rubric.tests:
            yield _warn(
                task.path / "tb_meta.json",
                f"rubric '{rubric.id}' has no test: it is shown as untested and does not count",
                "name a script under tests/",
            )


def _solution(task: Task) -> Iterator[Finding]:
    missing = [step.name for step in task.steps if not (step.solution or task.solution)]
    if task.steps and missing:
        yield _warn(
            task.path / "steps" / missing[0],
            f"step '{missing[0]}' has no solution/solve.sh",
            "without one nobody can show that the task can be done",
        )
    elif not task.steps and task.solution is None:
        yield _warn(
            task.path / "solution",
            "no solve.sh: the oracle cannot do this task",
            "without one nobody can show that the task can be done",
        )
    for script in sorted(task.path.rglob("solution/*.sh")):
        text = _read(script)
        if found := _line_with(re.compile(r"/logs/verifier|/tests/"), text):
            yield _warn(
                f"{script}:{found[0]}",
                f"the solution touches {found[1].rstrip('/')}",
                "an agent cannot; solve the task with what the agent has",
            )


def _image(task: Task) -> Iterator[Finding]:
    file = task.environment.dockerfile
    if file is None:
        return
    for number, line in enumerate(_read(file).splitlines(), 1):
        words = line.split()
        if len(words) > 1 and words[0].upper() == "FROM":
            image = next((word for word in words[1:] if not word.startswith("--")), "")
            tag = image.rpartition("/")[2]
            if (
                "$" not in image
                and image != "scratch"
                and ("@" not in tag)
                and (":" not in tag or tag.endswith(":latest"))
            ):
                yield _warn(
                    f"{file}:{number}",
                    f"'{image}' may be another system tomorrow",
                    "name a version: FROM debian:bookworm-slim",
                )
        if len(words) > 1 and words[0].upper() in {"COPY", "ADD"} and re.search(r"\b(solution|tests)/", line):
            yield Finding(
                level="error",
                place=f"{file}:{number}",
                message="copies the solution or the tests into the image, where the agent can read them",
                hint="leave them out; they are brought in when they are needed",
            )


def _overrides(task: Task) -> Iterator[Finding]:
    file = task.path / "overrides.json"
    if file.is_file():
        try:
            load_overrides(file)
        except TaskError as error:
            yield _from_text("error", str(error), task.path)


def _files(task: Task) -> Iterator[Finding]:
    for file in sorted(task.path.rglob("*")):
        if file.is_symlink():
            yield _warn(file, "a link: it is lost when the task is packed", "put the file itself here")
        elif file.is_file() and file.stat().st_size > _LARGE_BYTES:
            size = file.stat().st_size >> 20
            yield _warn(
                file, f"{size} MB: every copy of the task carries it", "make it when the image is built"
            )


def _proven(task: Task, proofs: Proofs) -> Iterator[Finding]:
    known = proofs(task.name, task.digest)
    how = f'proctor run a spec with path = "{task.path}" and agent = ["oracle", "nop"]'
    if "passed" not in known.get("oracle", set()):
        seen = known.get("oracle")
        said = f"the oracle ended as {', '.join(sorted(seen))}" if seen else "no oracle-proof"
        yield _warn(task.path, f"{said}: it is not shown here that the task can be done", how)
    nop = known.get("nop", set())
    if "passed" in nop:
        yield Finding(
            level="error",
            place=str(task.path),
            message="nop has passed: the tests pass when nothing is done",
            hint="let the tests fail on the untouched workspace",
        )
    elif not nop & {"failed", "partial"}:
        yield _warn(task.path, "no nop-proof: it is not shown here that doing nothing fails", how)


def _line_with(pattern: re.Pattern[str], text: str) -> tuple[int, str] | None:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#") and (match := pattern.search(line)):
            return number, match[0]
    return None


def _read(file: Path) -> str:
    """A small text; nothing for what is large, binary or gone."""
    try:
        if file.is_symlink() or file.stat().st_size > 1 << 20:
            return ""
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return ""
