"""Rules about a task's image: what it is made from, and whether it gives the answer away."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from proctor.tasks.lint.problems import MAX_TEXT_BYTES, InImage, Problem, ReviewedTask, from_text

_SCRIPTS = frozenset({".sh", ".py", ".js", ".ts", ".rb", ".pl", ".go", ".rs", ".r", ".java", ".c", ".cpp"})
_TELLING_LINES = 3
_TELLING_CHARACTERS = 80
"""A shorter text may well be found somewhere by chance."""
_COMMANDS = re.compile(r"[;&|\n]+")
_RUNNER = re.compile(
    r"(?:^|[\s(/])(?:pytest|python3?|bash|sh|source|node|ruby|perl|uvx?|npx|go|cargo|Rscript)\s"
)
_ORDINARY = re.compile(r"^(?:#.*|set -\S+|exit \d+|cd \S+|)$")


def base_images(subject: ReviewedTask) -> Iterator[Problem]:
    """Images without a version."""
    environment = subject.task.environment
    if environment.image and _floats(environment.image):
        yield _unpinned(str(subject.task.path / "task.toml"), environment.image)
    file = environment.dockerfile
    if file is None or environment.image:
        return
    stages: set[str] = set()
    for number, line in enumerate(subject.text(file).splitlines(), 1):
        words = [word for word in line.split() if not word.startswith("--")]
        if len(words) < 2 or words[0].upper() != "FROM":
            continue
        if words[1].lower() not in stages and _floats(words[1]):
            yield _unpinned(f"{file}:{number}", words[1])
        if len(words) == 4 and words[2].upper() == "AS":
            stages.add(words[3].lower())


def _floats(image: str) -> bool:
    tag = image.rpartition("/")[2]
    if "$" in image or image == "scratch" or "@" in tag:
        return False
    return ":" not in tag or tag.endswith(":latest")


def _unpinned(place: str, image: str) -> Problem:
    return Problem(
        "hint",
        place,
        "an image without a version can change at any time",
        detail=image,
        hint="name a version, for example debian:bookworm-slim",
    )


def leaks(subject: ReviewedTask) -> Iterator[Problem]:
    """Files of the solution and of the tests that the agent can read in the image."""
    for problem in subject.image.problems:
        yield from_text("error", problem, subject.task.path)
    for place, source in subject.image.missing:
        yield Problem(
            "error",
            place,
            "the image cannot be built: COPY names something that is not in the build context",
            detail=source,
            hint="add the file to environment/, or leave the line out",
        )
    if not subject.image.files:
        return
    by_size: dict[int, list[InImage]] = {}
    for each in subject.image.files:
        by_size.setdefault(each.size, []).append(each)
    for file in _files(subject.solution_folders):
        yield from _solution_leaks(subject, file, by_size)
    if subject.task.verifier.bundled:
        return
    for file in _files(subject.test_folders):
        if _judges(subject, file) and (copy := _copy_of(file, by_size)):
            yield Problem(
                "error",
                copy.place,
                (
                    f"the image contains {_named(subject, file)} (identical content), where the agent can "
                    "read it"
                ),
                detail=copy.path,
                hint="leave it out of the image; the tests are copied in when they run",
            )


def _solution_leaks(
    subject: ReviewedTask, file: Path, by_size: dict[int, list[InImage]]
) -> Iterator[Problem]:
    script = file.suffix.lower() in _SCRIPTS
    if copy := _copy_of(file, by_size):
        solves = file.name == "solve.sh"
        yield Problem(
            "error" if solves else "warning",
            copy.place,
            f"the image contains {_named(subject, file)} (identical content), where the agent can read it",
            detail=copy.path,
            hint=(
                "leave it out of the image: a .dockerignore, or a narrower COPY"
                if solves
                else "leave it out of the image if it is part of the answer"
            ),
        )
        return
    significant = _significant_text(subject.text(file)) if script else ""
    if not significant:
        return
    for each in subject.image.files:
        if len(significant) <= each.size <= MAX_TEXT_BYTES and significant in _plain(
            subject.text(each.source)
        ):
            yield Problem(
                "error",
                each.place,
                f"the image contains the text of {_named(subject, file)}, where the agent can read it",
                detail=each.path,
                hint="leave it out of the image",
            )
            return


def _files(folders: tuple[Path, ...]) -> list[Path]:
    found = [file for folder in folders for file in sorted(folder.rglob("*"))]
    return [file for file in found if not file.is_symlink() and file.is_file()]


def _judges(subject: ReviewedTask, file: Path) -> bool:
    """Whether a file of tests/ is the verifier's own: its script, or a program that the script runs.

    Tests often hold a clean copy of a file of the image, to put it back or to compare with it: that is fine.
    """
    if file.name == "test.sh":
        return True
    if file.suffix.lower() not in _SCRIPTS:
        return False
    named = re.compile(rf"(?<![\w.-]){re.escape(file.name)}(?![\w-])")
    commands = (
        command
        for folder in subject.test_folders
        for command in _COMMANDS.split(subject.text(folder / "test.sh"))
    )
    return any(_RUNNER.search(command) and named.search(command) for command in commands)


def _copy_of(file: Path, by_size: dict[int, list[InImage]]) -> InImage | None:
    """The file of the image that has the same content; an empty or tiny one means nothing."""
    size = file.stat().st_size
    candidates = by_size.get(size, []) if size > 16 else []
    if not candidates:
        return None
    digest = _digest(file)
    return next((each for each in candidates if _digest(each.source) == digest), None)


def _digest(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _significant_text(text: str) -> str:
    """What a solution says, without comments and ordinary lines; empty when that is too little to tell."""
    plain = _plain(text)
    enough = plain.count("\n") + 1 >= _TELLING_LINES and len(plain) >= _TELLING_CHARACTERS
    return plain if enough else ""


def _plain(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if not _ORDINARY.match(line))


def _named(subject: ReviewedTask, file: Path) -> str:
    return file.relative_to(subject.task.path).as_posix()
