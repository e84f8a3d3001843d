"""The control of a task: its verifier in an untouched sandbox, to tell who broke it in an agent's.

Run when first needed and once per task (and step), shared by all attempts of the run, and kept in the run
folder below `controls/`. It works when it ends by itself with a valid reward; usually that reward is 0.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from proctor.errors import TaskError
from proctor.model.canonical import canonical_json
from proctor.model.outcome import Blame, Outcome
from proctor.model.place import safe_name
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord
from proctor.model.task import Step
from proctor.model.trial import Lease
from proctor.trial.collect import Collector
from proctor.trial.redact import Redactor
from proctor.trial.redact_files import clean_folder
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.ready import make_ready
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_trial import TaskAttempt
from proctor.trial.verify import Verdict

FOLDER = "controls"
FILE = "control.json"
TRIES = 3
"""How often the infrastructure may fail before it stays unknown whether the verifier works."""
_SCHEMA_VERSION = 1
_ABOUT = "the task's tests in an untouched sandbox; not a trial, and not in the score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What the verifier of a task did in an untouched sandbox."""

    task: str
    step: str | None
    folder: str
    """Where its record and logs are, relative to the run folder."""
    outcome: Outcome
    reward: float | None
    message: str
    """Why there is no reward."""
    took_s: float
    """How long the verifier ran."""

    @property
    def works(self) -> bool:
        """Whether the verifier ended by itself, with a valid reward."""
        return self.reward is not None

    @property
    def decided(self) -> bool:
        """Whether anything is known: the infrastructure's trouble says nothing about the verifier."""
        return self.works or self.outcome.blame in {Blame.TASK, Blame.AUTHOR}

    @property
    def in_words(self) -> str:
        """A sentence for the notes of the attempts that needed it."""
        where = f"see {self.folder}/{FILE}"
        if self.works:
            return (
                "control: the same tests work in an untouched sandbox of this task "
                f"(reward {self.reward:g} after {self.took_s:.1f} s; {where})"
            )
        return (
            "control: the same tests also break in an untouched sandbox of this task "
            f"({self.outcome}: {self.message.rstrip('.')}; {where})"
        )

    def to_json(self, tries: Sequence[Mapping[str, Any]] = ()) -> bytes:
        """What a person or a later process reads: the result first, then each try as any attempt is kept."""
        head = {"schema_version": _SCHEMA_VERSION, "about": _ABOUT, "works": self.works, **asdict(self)}
        return (json.dumps({**head, "tries": tries}, indent=1) + "\n").encode()


class Controls:
    """The controls of one run. Attempts that need the same one at the same time share it."""

    def __init__(self, setting: TaskSetting) -> None:
        self.setting = setting
        self._running: dict[str, asyncio.Task[Control]] = {}
        self._waiting: Counter[str] = Counter()
        self._ending: set[asyncio.Task[Control]] = set()

    async def of(self, plan: TaskTrialPlan, trial: PlannedTrial, step: Step | None) -> Control:
        """The control of a trial's task: the one that was run before, or is running, or a new one."""
        key = _key(trial, step)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(self._find(key, plan, trial, step))
        self._waiting[key] += 1
        try:
            control = await asyncio.shield(running)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key] and not running.done():
                self._drop(key, running)
        if not control.decided and self._running.get(key) is running:
            del self._running[key]
        return control

    async def close(self) -> None:
        """End those for which nobody waits any more."""
        for key, running in list(self._running.items()):
            self._drop(key, running)
        if self._ending:
            await asyncio.wait(self._ending)

    def _drop(self, key: str, running: asyncio.Task[Control]) -> None:
        """Stop a control; one that is needed later begins anew."""
        self._running.pop(key, None)
        if not running.done():
            running.cancel()
            self._ending.add(running)
            running.add_done_callback(self._ending.discard)

    async def _find(self, key: str, plan: TaskTrialPlan, trial: PlannedTrial, step: Step | None) -> Control:
        name = trial.subject.replace("/", "__") + (f".{step.name}" if step else "")
        folder = f"{FOLDER}/{safe_name(name)}-{key[:8]}"
        place = self.setting.run_dir / folder
        if (known := _read(place / FILE, folder)) and known.decided:
            return known
        tries: list[AttemptRecord] = []
        while True:
            tries.append(await self._try(key, place, plan, trial, step, number=len(tries) + 1))
            control = _control(trial, step, folder, tries[-1])
            if control.decided or len(tries) == TRIES:
                break
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{FILE}.part"
        part.write_bytes(control.to_json([_row(each) for each in tries]))
        part.rename(place / FILE)
        return control

    async def _try(
        self,
        key: str,
        place: Path,
        plan: TaskTrialPlan,
        trial: PlannedTrial,
        step: Step | None,
        *,
        number: int,
    ) -> AttemptRecord:
        shutil.rmtree(place, ignore_errors=True)
        setting = replace(
            self.setting,
            run_id=f"{self.setting.run_id}-control-{key[:8]}",
            collector=_ControlFiles(place, self.setting.collector),
            on_log=None,
        )
        lease = Lease(
            run_id=setting.run_id,
            key=trial.key,
            index=trial.index,
            worker=setting.worker,
            fence=0,
            attempt=number,
            expires_at=0.0,
        )
        return await ControlAttempt(setting, plan, trial, lease, step).run()


class ControlAttempt(TaskAttempt):
    """A sandbox that is made as for any attempt, and judged at once."""

    def __init__(
        self,
        setting: TaskSetting,
        plan: TaskTrialPlan,
        trial: PlannedTrial,
        lease: Lease,
        step: Step | None,
    ) -> None:
        super().__init__(setting, plan, trial, lease)
        self.step = step

    async def _work_and_verify(self, step: Step | None) -> Verdict:
        with self.phases.phase("collect"):
            await self._run_hooks(step)
        return await self._verify(step)

    async def _judge(self) -> None:
        """A control says whether the tests work; no model is asked."""

    async def _run_steps(self) -> None:
        """Everything up to the step is laid out; a set-up may need work that was not done, which is noted."""
        for number, step in enumerate(self.task.steps):
            with self.phases.phase("setup"):
                try:
                    await make_ready(self.sandbox, step, cwd=self.workdir, env=self.env, first=not number)
                except TaskError as error:
                    self.notes.append(f"step '{step.name}': {error}")
            if step is self.step:
                self._take(await self._work_and_verify(step))
                return


class _ControlFiles(Collector):
    """Where the files of one control go; they are no artifacts of a trial."""

    def __init__(self, place: Path, own: Collector) -> None:
        super().__init__(place, own.blobs)

    def folder(self, trial: PlannedTrial, attempt: int) -> Path:
        del trial, attempt
        return self.run_dir

    def write(
        self, folder: Path, redactor: Redactor, *, trajectory: bytes, rubrics: list[dict[str, Any]]
    ) -> list[Artifact]:
        del trajectory, rubrics
        clean_folder(folder / "verifier", redactor)
        return []


def _key(trial: PlannedTrial, step: Step | None) -> str:
    """What decides about a verifier in an untouched sandbox: all of a trial but its agent and its rollout."""
    parts = [trial.subject_digest, trial.body, trial.path, dict(trial.overrides), step.name if step else None]
    return sha256(canonical_json(parts).encode()).hexdigest()


def _control(trial: PlannedTrial, step: Step | None, folder: str, record: AttemptRecord) -> Control:
    return Control(
        task=trial.subject,
        step=step.name if step else None,
        folder=folder,
        outcome=record.outcome,
        reward=record.reward,
        message=record.failure.message if record.failure else "",
        took_s=record.phases_s.get("verify", 0.0),
    )


def _row(record: AttemptRecord) -> dict[str, Any]:
    """One try, without what only a trial's attempt has."""
    without = {"key", "number", "artifacts", "iterations", "usage"}
    return {name: value for name, value in record.to_mapping().items() if name not in without}


def _read(file: Path, folder: str) -> Control | None:
    """A control that was run before; a file that cannot be read is as good as none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(file.read_bytes())
        known = {each.name: found[each.name] for each in fields(Control)}
        return Control(**{**known, "folder": folder, "outcome": Outcome(found["outcome"])})
    return None
