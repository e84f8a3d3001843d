"""Judge a pass a second time, in a new sandbox of the same root with the agent's state less some changes.

The first verdict stands where the second gives the same reward. Where they differ the second counts and the
attempt is suspect; a pass that the second cannot confirm counts as nothing.
"""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from proctor.errors import SandboxError
from proctor.model.outcome import Outcome
from proctor.model.record import Failure
from proctor.model.task import Step
from proctor.sandbox.base import can
from proctor.sandbox.lower import Lower, lower_of
from proctor.threads import in_thread
from proctor.trial.collect import KeepsState, laid_above
from proctor.trial.task.blame import is_hosts
from proctor.trial.task.sandboxes import Policy
from proctor.trial.task.second_look.changes import (
    MAX_READ_BYTES,
    MOST_SHOWN,
    Undo,
    contents,
    is_system,
    path_text,
    summary,
    write_clean,
)
from proctor.trial.task.second_look.context import RuleContext, TaskText, test_text
from proctor.trial.task.second_look.packages import STATUS, is_record, packages_of, without
from proctor.trial.task.second_look.startup import ACCOUNTS, CACHE
from proctor.trial.task.state import Entry, entries
from proctor.trial.verify import LOG, Verdict, judge_in

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt


PHASE = "second_look"
_WHOLE = "state.tar"
_CLEAN = "clean.tar"
_LITTLE_BYTES = 1 << 14
MAX_LARGE_BYTES = 8 << 30
"""A state that is too large to be kept is still looked at up to this size."""
_UNSEEN = Undo(Entry("", "folder"), "more changed than can be looked at")


async def look(attempt: TaskAttempt, step: Step | None, policy: Policy) -> SystemChanges:
    """What the agent changed in the system. Nothing is known of a sandbox that cannot tell."""
    sandbox = attempt.sandbox
    if not can(sandbox, KeepsState):
        return SystemChanges({})
    image = lower_of(sandbox)
    state = await _state(attempt)
    if state is None:
        return SystemChanges({"count": None, "first": []}, [_UNSEEN] if image else [])

    def text() -> TaskText:
        parts = [attempt.task.instruction, *(each.instruction for each in attempt.task.steps)]
        return TaskText("\n".join(parts), test_text(attempt.tests_of(step)))

    root = attempt.root
    above = laid_above(attempt.plan.workspace, attempt.workdir)
    inside = f"{attempt.workdir.strip('/')}/"
    around = Surroundings(
        workdir=attempt.workdir,
        env={**(root.env if root else {}), **attempt.env},
        image=image,
        text=text,
        given=lambda path: attempt.base(path) if path.startswith(inside) else above(path),
        online=policy.network != "none",
        covered=getattr(sandbox, "covered", frozenset()),
        replaced=tuple(getattr(sandbox, "given_changed", tuple)()),
    )
    if state.stat().st_size <= _LITTLE_BYTES:  # a thread would cost more than the work
        found, said = _listed(state.read_bytes(), around)
        if image is None or not _worth(found, around, bool(said)):
            return SystemChanges(said)
    return await in_thread(_find_in_file, state, around)


async def _state(attempt: TaskAttempt) -> Path | None:
    """The state that is kept, or a copy that is not: the kept one is smaller, and has no secrets."""
    if (known := attempt.state_file()) is not None:
        return known
    whole = scratch(attempt, _WHOLE)
    saved = await cast("KeepsState", attempt.sandbox).save_state(whole, max_bytes=MAX_LARGE_BYTES)
    return whole if saved else None


def scratch(attempt: TaskAttempt, name: str) -> Path:
    """A file for as long as the attempt; outside of the run folder where it may hold secrets."""
    if attempt.scratch is None:
        attempt.folder.mkdir(parents=True, exist_ok=True)
        above = None if attempt.redactor else attempt.folder
        attempt.scratch = Path(tempfile.mkdtemp(prefix=".proctor-", dir=above))
    return attempt.scratch / name


async def confirm(
    attempt: TaskAttempt, found: SystemChanges, first: Verdict, step: Step | None, policy: Policy
) -> Verdict:
    """The verdict that counts. A pass that no changed system file can have helped is the first one."""
    if not first.reward or not found.touching:
        return first
    with attempt.phases.phase(PHASE):
        second, problem = await _second(attempt, found, step, policy)
    again: dict[str, Any] = {
        "count": len(found.touching),
        "files": [f"/{path_text(each.entry.path)}: {each.why}" for each in found.touching[:MOST_SHOWN]],
        "rewards": [first.reward, second.reward if second else None],
        "reason": "",
    }
    attempt.system_changes = {**attempt.system_changes, "judged_again": again}
    if second is not None and second.reward == first.reward:
        return first
    attempt.suspect = True
    again["reason"] = _reason(again, second, problem)
    attempt.notes.append(f"suspect: {again['reason']}")
    if second is None and not problem.startswith(_NOT_CONFIRMED):
        return first
    if second is not None and second.reward is not None:
        return second
    message = f"{again['reason']}; such a pass counts as 0"
    failure = Failure(phase=PHASE, type="NotConfirmed", message=message)
    return Verdict(outcome=Outcome.FAILED, reward=0.0, parts={"reward": 0.0}, failure=failure)


_NOT_CONFIRMED = "the second judging broke"


def _reason(again: Mapping[str, Any], second: Verdict | None, problem: str) -> str:
    files = "; ".join(again["files"][:3]) + (" …" if again["count"] > 3 else "")
    first = again["rewards"][0]
    if second is None:
        return f"the reward {first:g} could not be confirmed: {problem} ({files})"
    if second.reward is None:
        words = second.failure.message if second.failure else str(second.outcome)
        return f"the reward {first:g} could not be confirmed without changed system files: {words} ({files})"
    return f"the reward was {first:g} with changed system files and {second.reward:g} without them ({files})"


async def clean_state(attempt: TaskAttempt, found: SystemChanges) -> Path | None:
    """The agent's state less the changes that can help a verdict; None when more changed than can be seen.

    `found` is what `look` said of it.
    """
    if _UNSEEN in found.undone:
        return None
    state = attempt.state_file() or scratch(attempt, _WHOLE)
    clean = scratch(attempt, _CLEAN)
    await in_thread(write_clean, state, clean, found.undone)
    return clean


async def _second(
    attempt: TaskAttempt, found: SystemChanges, step: Step | None, policy: Policy
) -> tuple[Verdict | None, str]:
    """The second verdict, or why there is none."""
    if attempt.root is None or attempt.root.compose:
        return None, "the services beside it hold a state that cannot be made again"
    clean = await clean_state(attempt, found)
    if clean is None:
        return None, f"{_NOT_CONFIRMED}: {_UNSEEN.why}"
    attempt.logs.write(LOG, b"== judged again, without changed system files\n")
    suffix = attempt.sandbox_name("again", step)
    request = attempt.request(attempt.root, suffix=suffix, state=clean, policy=policy)
    sandbox = attempt.setting.backend.sandbox(request)
    try:
        await sandbox.start()
        return await judge_in(attempt, sandbox, attempt.workdir, step, part=PHASE), ""
    except SandboxError as error:
        if await is_hosts(error, sandbox):
            raise
        return None, f"{_NOT_CONFIRMED}: {error}"
    finally:
        await sandbox.stop()


_READ = (".pth", "/entry_points.txt", "pyproject.toml", "setup.cfg", "tox.ini", "__init__.py")
_MOST_FRESH = 400
_OFTEN_LINKS = {"bin", "lib", "lib64", "sbin"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class SystemChanges:
    """What changed, and what of it a second verdict is to do without."""

    summary: Mapping[str, Any]
    undone: Sequence[Undo] = ()
    fresh: Sequence[str] = ()
    """Folders of compiled modules to empty before any verdict."""

    @property
    def touching(self) -> list[Undo]:
        """The changes that can have helped a verdict."""
        return [each for each in self.undone if not each.harmless]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of a task's sandbox besides its state."""

    workdir: str
    env: Mapping[str, str]
    image: Lower | None
    text: Callable[[], TaskText]
    given: Callable[[str], bytes | None]
    """What the run itself laid at a path before the agent began; None where it laid nothing."""
    online: bool
    covered: frozenset[str] = frozenset()
    """Paths of the state that the sandbox itself made, under something that is mounted there."""
    replaced: Sequence[str] = ()
    """Files that the engine gave to the inside, and that are no part of the state, if they changed."""


def _find_in_file(state: Path, around: Surroundings) -> SystemChanges:
    small = state.stat().st_size <= 1 << 20
    return find(state.read_bytes() if small else state, around)


def find(state: Path | bytes, around: Surroundings) -> SystemChanges:
    """What the state says."""
    found, said = _listed(state, around)
    if around.image is None or not _worth(found, around, bool(said)):
        return SystemChanges(said)
    from proctor.trial.task.second_look.rules import caches, undoing

    look = _look(state, found, around, around.image)
    undone = undoing(found, look)
    fresh = caches(found, look)
    undone += _forgotten(undone, found, look)
    return SystemChanges(said, undone, fresh[:_MOST_FRESH])


def _listed(state: Path | bytes, around: Surroundings) -> tuple[list[Entry], Mapping[str, Any]]:
    found = [
        entry
        for entry in entries(state)
        if entry.path not in around.covered and not _laid_by_the_run(entry, around)
    ]
    found += [Entry(path, "file") for path in around.replaced]
    return found, summary(found, around.workdir, around.image)


def _laid_by_the_run(entry: Entry, around: Surroundings) -> bool:
    """Whether a file around the working folder is an overlay that the agent left as it was."""
    if entry.kind != "file" or not is_system(entry.path, around.workdir):
        return False
    content = around.given(entry.path)
    return content is not None and len(content) == entry.size and entry.read() == content


def _worth(found: Sequence[Entry], around: Surroundings, system: bool) -> bool:
    """Whether anything is there that a rule could be about: most attempts end here."""
    if system:
        return True
    workdir = around.workdir.strip("/")
    for entry in found:
        if entry.kind == "folder":
            if entry.opaque or entry.path in _OFTEN_LINKS:
                return True
            continue
        if not entry.path.startswith(f"{workdir}/") and not entry.path.startswith(
            ("tmp/", "logs/", "tests/")
        ):
            return True
        if entry.path.endswith((".py", ".pyc", ".so", ".ini", ".cfg", ".toml")):
            return True
    return False


def _look(state: Path | bytes, found: Sequence[Entry], around: Surroundings, image: Lower) -> RuleContext:
    workdir = around.workdir.strip("/")
    before = {
        each.path
        for each in found
        if each.kind == "file" and each.size <= MAX_READ_BYTES and is_system(each.path, workdir)
        if image.kind(each.path) == "file"
    }
    texts: dict[str, bytes] = {}
    same: set[str] = set()
    for path, content in contents(state, lambda path: path in before or _is_read(path)):
        if path in before and image.read(path) == content:
            same.add(path)
        if _is_read(path):
            texts[path] = content
    path = around.env.get("PATH") or PATH
    return RuleContext(
        image=image,
        text=around.text(),
        workdir=workdir,
        path=tuple(dict.fromkeys(image.real(each) for each in path.split(":") if each.startswith("/"))),
        homes=_homes(found, around.env),
        packages=packages_of(found, texts, image),
        contents=texts,
        given=around.given,
        online=around.online,
        same=frozenset(same),
    )


def _is_read(path: str) -> bool:
    name = posixpath.basename(path)
    return (
        path in {CACHE, ACCOUNTS}
        or path.endswith(_READ)
        or name.startswith("__editable__")
        or is_record(path)
    )


def _homes(found: Sequence[Entry], env: Mapping[str, str]) -> tuple[str, ...]:
    users = {"/".join(each.path.split("/")[:2]) for each in found if each.path.startswith("home/")}
    own = env.get("HOME", "").strip("/")
    return tuple(dict.fromkeys(["root", *([own] if own else []), *sorted(users)]))


def _forgotten(undone: Sequence[Undo], found: Sequence[Entry], look: RuleContext) -> list[Undo]:
    """Where a package's program goes that the image lacks, so does the note that it is installed."""
    gone = {
        name
        for each in undone
        if (name := look.packages.paths.get(each.entry.path)) and look.image.kind(each.entry.path) is None
    }
    status = next((each for each in found if each.path == STATUS), None)
    if not gone or status is None:
        return []
    return [Undo(status, "lists packages", content=without(look.contents[STATUS], gone), harmless=True)]
