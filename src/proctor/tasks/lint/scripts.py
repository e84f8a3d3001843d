"""Rules about what a task's texts say: the instruction, the test script, the solution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from proctor.tasks.lint.problems import Problem, ReviewedTask, line_with

_SHORT = 20
_START = r"(?<![\w./~$}%@:-])"
_END = r"(?=/|[^\w.-]|\.(?:\s|$)|$)"
_TESTS = re.compile(rf"{_START}/tests{_END}")
"""A path that begins with /tests: no part of /app/tests, ./tests or src/tests, and no /tests-data."""
_SOLUTION_FILE = re.compile(rf"{_START}/solution/([\w./-]*[\w-])")
_VERIFIER = re.compile(rf"{_START}(/logs/verifier|/tests){_END}")
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_REWARD = re.compile(r"reward\.(?:txt|json)|rewardkit|reward_(?:text|json)_path")
_FETCHES = re.compile(
    r"(?:^|[;&|(]|\b(?:sudo|then|do|else|if)\s)\s*"
    r"(curl|wget|apt(?:-get)? (?:-\S+ )*(?:install|update)|apk add|(?:python[\d.]* -m )?pip[\d.]* install|"
    r"uvx|uv (?:pip|tool|sync)|npm (?:install|ci)|git clone)\b"
)
_ALWAYS = re.compile(
    r"^\s*(?:echo|printf)\s+(?:-n\s+)?[\"']?1(?:\.0+)?(?:\\n)?[\"']?\s*>\s*[\"']?/logs/verifier/reward\.txt",
    re.MULTILINE,
)
_DECIDES = re.compile(
    r"\b(?:if|case|while|until|trap|exec)\b|&&|\bset -\w*e|\bexit [1-9$]|\|\| *(?:exit|\{|echo)"
)
_RUNS = re.compile(
    r"(?:^|[\s;&|(])(?:pytest|python3?|bash|sh|source|\.|node|ruby|perl)\s+(?:-\w+\s+)*/tests/([\w./-]*[\w-])"
)
_GIVEN_TIME = re.compile(
    r"\byou have (\d+(?:\.\d+)?) (second|minute|hour)s? to (?:complete|finish|solve|do)\b", re.IGNORECASE
)
_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_LOCAL = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]|file://|--no-index|\$\{?\w*(?:HOST|URL)\w*\}?"
)


def instructions(subject: ReviewedTask) -> Iterator[Problem]:
    """The instruction for the agent."""
    task = subject.task
    steps = [(task.path / "steps" / each.name, each.instruction, each.agent.timeout_s) for each in task.steps]
    for folder, instruction, limit_s in steps or [(task.path, task.instruction, task.agent.timeout_s)]:
        file = folder / "instruction.md"
        if len(instruction.strip()) < _SHORT:
            hint = "say what is to be done, and where"
            yield Problem("warning", str(file), "the instruction is very short", hint=hint)
        yield from _mentions(subject, file)
        yield from _promised_time(file, instruction, limit_s)


def _promised_time(file: Path, instruction: str, limit_s: float) -> Iterator[Problem]:
    for match in _GIVEN_TIME.finditer(instruction):
        promised_s = float(match[1]) * _SECONDS[match[2].lower()]
        if promised_s != limit_s:
            yield Problem(
                "warning",
                str(file),
                "the instruction states another time limit than the agent has",
                detail=f"{match[0]}, and [agent] timeout_sec is {limit_s:g}",
                hint="make both the same",
            )


def _mentions(subject: ReviewedTask, file: Path) -> Iterator[Problem]:
    text = subject.text(file)
    if found := next(((n, 0) for n, line in enumerate(text.splitlines(), 1) if _TESTS.search(line)), None):
        yield Problem(
            "warning",
            f"{file}:{found[0]}",
            "the instruction names /tests, which is emptied before the tests run and hidden till then",
            hint="describe the wanted result instead",
        )
    for number, line in enumerate(text.splitlines(), 1):
        named = [name for name in _SOLUTION_FILE.findall(line) if _of_solution(subject, name)]
        if named:
            yield Problem(
                "warning",
                f"{file}:{number}",
                f"the instruction names /solution/{named[0]}, a file that only the oracle gets",
                hint="describe the wanted result instead",
            )
            break
    shown = text.splitlines()[_top(text) :]
    if any(_CANARY.fullmatch(line.strip()) for line in shown):
        yield Problem(
            "hint",
            str(file),
            "a canary comment below the first lines is shown to the agent",
            hint="move it to the top of the file, where it is left out",
        )


def _of_solution(subject: ReviewedTask, name: str) -> bool:
    return any((folder / name).is_file() for folder in subject.solution_folders)


def _top(text: str) -> int:
    """How many lines at the top are comments with a canary."""
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines) if not _CANARY.fullmatch(line.strip())), len(lines))


def tests(subject: ReviewedTask) -> Iterator[Problem]:
    """The script that judges."""
    task = subject.task
    found = [folder / "test.sh" for folder in subject.test_folders if (folder / "test.sh").is_file()]
    for script in found:
        yield from _script(subject, script)
        yield from _network(subject, script)
        yield from _missing_files(subject, script)
    if found and not task.rubrics and not _rewards(subject):
        yield Problem(
            "warning",
            str(found[0]),
            "nothing in tests/ writes reward.txt or reward.json: the task would end as verifier_error",
            hint="write 1 or 0 to /logs/verifier/reward.txt",
        )
    if not task.steps:  # a step that only prepares the next may well reward whatever happens
        yield from _always_rewarded(subject, found)
    for rubric in task.rubrics:
        if not rubric.is_tested:
            yield Problem(
                "warning",
                str(task.path / "tb_meta.json"),
                f"rubric '{rubric.id}' has no test: it is shown as untested and does not count",
                hint="name a script under tests/, or let a judge score it",
            )


def _script(subject: ReviewedTask, script: Path) -> Iterator[Problem]:
    text = subject.text(script)
    if "\r\n" in text:
        yield Problem(
            "error",
            str(script),
            "Windows line ends: the shell reads them as part of the commands",
            hint="convert the file to plain newlines",
        )
    if text.strip() and not text.startswith("#!"):
        yield Problem("hint", f"{script}:1", "no #! line", hint="begin the script with #!/bin/bash")


def _always_rewarded(subject: ReviewedTask, found: list[Path]) -> Iterator[Problem]:
    """Scripts that give the full reward whatever their tests say."""
    for script in found:
        text = subject.text(script)
        if _ALWAYS.search(text) and len(_REWARD.findall(text)) == 1 and not _DECIDES.search(text):
            number = next(n for n, line in enumerate(text.splitlines(), 1) if _ALWAYS.match(line))
            yield Problem(
                "error",
                f"{script}:{number}",
                "the reward is 1 whatever the tests find",
                hint="write 1 only when they have passed, else 0",
            )


def _missing_files(subject: ReviewedTask, script: Path) -> Iterator[Problem]:
    """Programs of /tests that the script runs and that are not there."""
    for number, line in enumerate(subject.text(script).splitlines(), 1):
        for name in [] if line.lstrip().startswith("#") else _RUNS.findall(line):
            made = re.search(rf"(?:>|cp .*|mv .*|-o)\s*/tests/{re.escape(name)}", subject.text(script))
            if not made and not any((folder / name).exists() for folder in subject.test_folders):
                yield Problem(
                    "warning",
                    f"{script}:{number}",
                    "the tests run a file that is not in tests/",
                    detail=f"/tests/{name}",
                    hint="add it, or correct its name",
                )


def _network(subject: ReviewedTask, script: Path) -> Iterator[Problem]:
    task = subject.task
    asked = task.verifier.network or task.environment.network
    if asked != "none" or task.verifier.separate:
        return
    for number, line in enumerate(subject.text(script).splitlines(), 1):
        match = None if line.lstrip().startswith("#") or _LOCAL.search(line) else _FETCHES.search(line)
        if match:
            yield Problem(
                "warning",
                f"{script}:{number}",
                f"'{match[1]}' needs the network, which the tests do not have",
                hint="install what the tests need in the image, or change network_mode",
            )
            return


def _rewards(subject: ReviewedTask) -> bool:
    """Whether anything that the tests may run writes a reward file. The image may hold the grader."""
    folders = [*subject.test_folders, *([folder] if (folder := subject.task.environment.folder) else [])]
    files = (file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file())
    return any(_REWARD.search(subject.text(file)) for file in files)


def solutions(subject: ReviewedTask) -> Iterator[Problem]:
    """The author's solution."""
    task = subject.task
    missing = [step.name for step in task.steps if not (step.solution or task.solution)]
    if missing:
        yield Problem(
            "warning",
            str(task.path / "steps" / missing[0]),
            f"step '{missing[0]}' has no solution/solve.sh",
            hint="without it nothing shows that the task can be solved",
        )
    elif not task.steps and task.solution is None:
        yield Problem(
            "warning",
            str(task.path / "solution"),
            "no solution/solve.sh: the oracle cannot do this task",
            hint="without it nothing shows that the task can be solved",
        )
    for script in [file for folder in subject.solution_folders for file in sorted(folder.glob("*.sh"))]:
        text = subject.text(script)
        if "\r\n" in text and script.name == "solve.sh":
            yield from _script(subject, script)
        if found := line_with(_VERIFIER, text):
            yield Problem(
                "warning",
                f"{script}:{found[0]}",
                f"the solution uses {found[1][1] or found[1][0]}, which an agent cannot",
                hint="solve the task with what the agent has",
            )
