"""One attempt at one task: prepare → agent → verify → collect, and the truth about how it ended."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from proctor.agents.base import AgentContext, AgentFailed, Allowance, BudgetExhausted
from proctor.agents.trajectory import Trajectory
from proctor.errors import ImageError, ProctorError, ProviderError, SandboxError, TaskError
from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.spec import SandboxSpec
from proctor.model.task import Step, Task, TaskEnvironment
from proctor.model.trial import Lease
from proctor.processes import allowed_cpus
from proctor.sandbox.base import Backend, Root, Sandbox, leave
from proctor.trial.collect import Collector, base_of
from proctor.trial.logs import Logs
from proctor.trial.phases import Phases
from proctor.trial.redact import Redactor, secrets_in
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.request import sandbox_request, workdir_of
from proctor.trial.task.spare import Spare, Started
from proctor.trial.task.variables import fill
from proctor.trial.verify import Verdict, verify, verify_rubrics

STARTS = 4 * len(allowed_cpus())
"""Sandboxes that are being started at a time. Of many trials some then work while others begin, and the
first does not wait until the last has a place."""


_HOST_LACKED = {
    "host_oom": "the host ran out of memory and killed a process of this attempt, below its own limit",
    "host_full": "the disk of the host is nearly full; this attempt was ended, below its own limit",
}


class MakeRoot(Protocol):
    """Makes the root file system of a task, or of its separate verifier."""

    def __call__(self, task: Task, environment: TaskEnvironment | None = None, /) -> Awaitable[Root]:
        """The root; ImageError when it cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetting:
    """What all trials of a run share."""

    run_id: str
    run_dir: Path
    sandbox: SandboxSpec
    backend: Backend
    make_root: MakeRoot
    """Builds once per digest, however many trials ask."""
    collector: Collector
    timeout_s: float | None = None
    allowance: Allowance = field(default_factory=Allowance)
    model_base_url: str = ""
    model_token: str = ""
    given: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Where `${VAR}` of a task is looked up."""
    worker: str = ""
    clock: Callable[[], float] = time.time
    on_log: Callable[[PlannedTrial, str, bytes], None] | None = None
    """Hears what agents and tests print, as it is written: trial, log, bytes without secrets."""
    redactor: Redactor = field(init=False)
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS))
    """Who may start a sandbox now."""

    def __post_init__(self) -> None:
        secrets = {**secrets_in(self.given), "MODEL_TOKEN": self.model_token}
        known = Redactor({name: value for name, value in secrets.items() if value})
        object.__setattr__(self, "redactor", known)


class TaskAttempt:
    """One attempt. `run` never raises for what the subject does; cancellation passes through."""

    def __init__(
        self,
        setting: TaskSetting,
        plan: TaskTrialPlan,
        trial: PlannedTrial,
        lease: Lease,
        spare: Spare | None = None,
    ) -> None:
        self.setting = setting
        self.spare = spare
        self.plan = plan
        self.task = plan.task
        self.trial = trial
        self.lease = lease
        self.folder = setting.collector.folder(trial, lease.attempt)
        self.redactor = setting.redactor
        heard = partial(setting.on_log, trial) if setting.on_log else None
        self.logs = Logs(self.folder / "logs", self.redactor, heard)
        self.phases = Phases()
        self.trajectory = Trajectory(
            session_id=f"{setting.run_id}/{trial.key[:16]}/{lease.attempt}",
            agent=plan.agent.name,
            version=plan.agent.version,
            model=trial.model,
        )
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        self.reward: float | None = None
        self.parts: dict[str, float] = {}
        self.steps: dict[str, float | None] = {}
        self.rubrics: list[dict[str, object]] = []
        self.usage: dict[str, Any] = {}
        self.ledger: dict[str, Any] = {}
        self.notes: list[str] = list(self.task.warnings)
        self.state: list[Artifact] = []
        """What the agent left, before the tests came."""
        self.artifacts: list[Artifact] = []
        self.sandbox: Sandbox | None = None

    async def run(self) -> AttemptRecord:
        """Prepare, agent, verify, collect, stop; then the record."""
        started_at = self.setting.clock()
        try:
            await self._work()
        except TaskError as error:
            self._end(Outcome.INVALID, error)
        except ImageError as error:
            self._end(Outcome.IMAGE_ERROR, error)
        except SandboxError as error:
            self._end(Outcome.SANDBOX_ERROR, error)
        except ProviderError as error:
            self._end(Outcome.PROVIDER_ERROR, error)
        except Exception as error:  # noqa: BLE001 - the harness's own fault is an outcome too, with its traceback
            self._end(Outcome.SANDBOX_ERROR, error)
        finally:
            await self._close()
        return self._record(started_at)

    async def _work(self) -> None:
        env = environment(self.setting, self.plan)
        with self.phases.phase("image"):
            root: Root = await self.setting.make_root(self.task)
        with self.phases.phase("queue"):
            await self.setting.starts.acquire()
        try:
            with self.phases.phase("start"):
                await self._start(root, env)
        finally:
            self.setting.starts.release()
        assert self.sandbox is not None
        with self.phases.phase("setup"):
            await self._set_up(self.sandbox, root)
        if self.task.steps:
            await self._run_steps(self.sandbox, env)
        else:
            verdict = await self._one_leg(self.sandbox, env, None)
            self._take(verdict)
        with self.phases.phase("collect"):
            self.artifacts += await self.setting.collector.collect(
                self.sandbox, self.task, self.workdir, self.folder
            )

    async def _set_up(self, sandbox: Sandbox, root: Root) -> None:
        made = self.workdir == root.workdir
        await self.plan.workspace.lay_out(sandbox, self.workdir, made=made)
        await self._wait_healthy(sandbox)

    async def _start(self, root: Root, env: Mapping[str, str], state: Path | None = None) -> None:
        self.workdir = workdir_of(self.task, root)
        self.base = base_of(root, self.plan.workspace, self.workdir)
        suffix = f"{self.lease.attempt}-{self.lease.fence}"
        request = sandbox_request(self.setting, self.task, self.trial, root, env, suffix=suffix, state=state)
        sandbox = await self.spare.take(self.trial.key, request) if self.spare else None
        if sandbox is None:
            sandbox = self.setting.backend.sandbox(request)
            await sandbox.start()
        self.sandbox = sandbox
        if root.host:
            self.notes.append("host-root: made from this machine's own system; not reproducible elsewhere")

    async def _wait_healthy(self, sandbox: Sandbox) -> None:
        check = self.task.environment.healthcheck
        if check is None:
            return
        await asyncio.sleep(check.start_period_s)
        for _ in range(check.retries):
            argv = ["/bin/sh", "-c", check.command]
            result = await sandbox.exec(argv, cwd=self.workdir, timeout_s=check.timeout_s)
            if result.exit_code == 0 and not result.timed_out:
                return
            await asyncio.sleep(check.interval_s)
        raise SandboxError(f"the task's health check failed {check.retries} times: {check.command}")

    async def _run_steps(self, sandbox: Sandbox, env: Mapping[str, str]) -> None:
        """Each step is judged on its own; one below its minimum ends the task."""
        rewards: list[float] = []
        for step in self.task.steps:
            verdict = await self._one_leg(sandbox, env, step)
            self.steps[step.name] = verdict.reward
            if verdict.reward is None:
                self._take(verdict)
                return
            rewards.append(verdict.reward)
            if self.outcome or (step.min_reward is not None and verdict.reward < step.min_reward):
                break
        final = self.task.reward_strategy == "final"
        complete = len(rewards) == len(self.task.steps)
        value = (rewards[-1] if complete else 0.0) if final else sum(rewards) / len(self.task.steps)
        self._take(Verdict(outcome=from_reward(value), reward=value))

    async def _one_leg(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> Verdict:
        """The agent works, then its work is judged, whatever became of the agent."""
        with self.phases.phase("agent"):
            await self._run_agent(sandbox, env, step)
        with self.phases.phase("collect"):
            self.state = await self.setting.collector.state(
                sandbox, self.workdir, self.base, self.folder, self.redactor
            )
        with self.phases.phase("verify"):
            return await self._verify(sandbox, env, step)

    async def _run_agent(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> None:
        own = step.agent if step else self.task.agent
        timeout_s = self.setting.timeout_s or own.timeout_s
        context = AgentContext(
            instruction=step.instruction if step else self.task.instruction,
            workdir=self.workdir,
            env=env,
            user=own.user,
            timeout_s=timeout_s,
            seed=self.trial.seed,
            limits=self.setting.allowance,
            step=step.name if step else None,
            model_base_url=self.setting.model_base_url,
            model_token=self.setting.model_token,
            trajectory=self.trajectory,
            log=self.logs.write,
        )
        self.trajectory.add("user", context.instruction)
        try:
            async with asyncio.timeout(timeout_s):
                result = await self.plan.agent.run(self.task, sandbox, self.trial.model, context)
        except TimeoutError as error:
            message = f"the agent did not end within {timeout_s:g} s"
            self._end(Outcome.AGENT_TIMEOUT, error, message)
        except BudgetExhausted as error:
            self._end(Outcome.BUDGET_EXHAUSTED, error)
        except AgentFailed as error:
            self._end(Outcome.AGENT_ERROR, error)
        except (SandboxError, ProviderError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the agent's own class is the agent's failure
            self._end(Outcome.AGENT_ERROR, error)
        else:
            self.notes.extend(result.notes)
            for name, value in result.usage.items():
                self.usage[name] = self.usage.get(name, 0) + value

    async def _verify(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> Verdict:
        task = self.task
        spec = step.verifier if step else task.verifier
        verifier_env = {**env, **filled(self.setting, self.plan, spec.env, "verifier")}
        keep = self.folder / "verifier"
        if step:
            keep /= step.name
        tests = (step.tests if step else task.tests) or task.path / "tests"
        judged_in = await self._judge_place(sandbox, step)
        try:
            if task.kind == "prepared" and task.rubrics:
                verdict, self.rubrics = await verify_rubrics(
                    judged_in,
                    tests=tests,
                    rubrics=task.rubrics,
                    spec=spec,
                    env=verifier_env,
                    cwd=self.workdir,
                    logs=self.logs,
                )
                return verdict
            return await verify(
                judged_in,
                tests=tests,
                spec=spec,
                env=verifier_env,
                cwd=self.workdir,
                logs=self.logs,
                keep=keep,
            )
        finally:
            if judged_in is not sandbox:
                await judged_in.stop()

    async def _judge_place(self, sandbox: Sandbox, step: Step | None) -> Sandbox:
        """The same sandbox, or for a separate verifier a fresh one that got only the collected files."""
        spec = step.verifier if step else self.task.verifier
        if not spec.separate:
            return sandbox
        from proctor.trial.task.separate import open_separate

        return await open_separate(
            self.setting, self.task, spec, self.trial, self.lease, sandbox, self.workdir
        )

    def _take(self, verdict: Verdict) -> None:
        """Join both ends: how the agent ended gives the name, the verifier gives the reward."""
        self.parts = dict(verdict.parts)
        if self.outcome is None:
            self.outcome, self.reward = verdict.outcome, verdict.reward
            self.failure = verdict.failure
        else:
            self.reward = verdict.reward if verdict.reward is not None else 0.0

    def _end(self, outcome: Outcome, error: BaseException, message: str = "") -> None:
        expected = isinstance(error, ProctorError | TimeoutError)
        self.outcome = outcome
        self.failure = Failure(
            phase=self.phases.current,
            type=type(error).__name__,
            message=self.redactor.text(message or str(error)),
            traceback="" if expected else self.redactor.text("".join(traceback.format_exception(error))),
        )

    async def _close(self) -> None:
        """Stop the sandbox; then it knows all that it has used."""
        if self.sandbox is not None:
            with self.phases.phase("stop"), suppress(SandboxError):
                await leave(self.sandbox)
            info = self.sandbox.info()
            self.ledger = {**info.ledger, "backend": info.backend, "enforced": dict(info.enforced)}
            self.notes += own_limits(self.ledger)
            self._blame_host()
        self.logs.close()

    def _blame_host(self) -> None:
        """Killed for memory or disk by the host and not by the task's own limit: nobody can be judged."""
        for name, lacked in _HOST_LACKED.items():
            if self.ledger.get(name) and self.outcome is not Outcome.PASSED:
                self.outcome, self.reward = Outcome.STARVED, None
                self.failure = Failure(phase="run", type="Starved", message=lacked)
                return

    def _record(self, started_at: float) -> AttemptRecord:
        outcome = self.outcome or Outcome.SANDBOX_ERROR
        files = self.setting.collector.write(
            self.folder, trajectory=self.redactor.whole(self.trajectory.to_json()), rubrics=self.rubrics
        )
        return AttemptRecord(
            key=self.trial.key,
            number=self.lease.attempt,
            outcome=outcome,
            started_at=started_at,
            ended_at=self.setting.clock(),
            reward=self.reward if outcome.scored else None,
            failure=self.failure,
            phases_s=self.phases.seconds,
            metrics=self._metrics(),
            ledger=self.ledger,
            usage={
                **self.usage,
                "prompt_tokens": int(self.trajectory.total("prompt_tokens")),
                "completion_tokens": int(self.trajectory.total("completion_tokens")),
                "cost_usd": self.trajectory.total("cost_usd"),
                "tool_calls": self.trajectory.tool_calls,
            },
            artifacts=(*self.state, *self.artifacts, *files),
            notes=tuple(self.notes),
            worker=self.setting.worker,
        )

    def _metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {"rewards": self.parts, "steps": self.steps, "rubrics": self.rubrics}
        return {name: value for name, value in found.items() if value or name == "rewards"}


def own_limits(ledger: Mapping[str, Any]) -> list[str]:
    """What was ended at the task's own limits: part of what the agent did, and not to be seen in its logs."""
    found = []
    if (kills := ledger.get("oom_kills")) and not ledger.get("host_oom"):
        some = "a process was" if kills == 1 else f"{kills} processes were"
        found.append(f"memory: {some} killed at the task's own limit")
    if (reason := ledger.get("storage_exceeded")) and not ledger.get("host_full"):
        found.append(f"storage: {reason}; everything that ran was ended")
    return found


def environment(setting: TaskSetting, plan: TaskTrialPlan) -> dict[str, str]:
    """The variables that a task's sandbox has besides those of its image."""
    return {**filled(setting, plan, plan.task.environment.env, "environment"), **plan.env}


def filled(
    setting: TaskSetting, plan: TaskTrialPlan, values: Mapping[str, str], table: str
) -> dict[str, str]:
    """Variables of a table of the task, with `${VAR}` looked up."""
    if not values:
        return {}
    where = f"{plan.task.path / 'task.toml'}: [{table}.env]"
    return fill(values, {**setting.given, **plan.env}, where)


class TaskExecutor:
    """Executes the task trials of one run."""

    def __init__(self, setting: TaskSetting, plans: Callable[[PlannedTrial], TaskTrialPlan]) -> None:
        self.setting = setting
        self.plans = plans
        self._reaped = False
        self._spare = Spare(self._start_ahead)

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One attempt. A task that cannot even be read is the author's fault, not a crash."""
        if not self._reaped:
            self._reaped = True
            # What cannot be removed now is found again at the next start; it must not stop this run.
            with suppress(SandboxError):
                await self.setting.backend.reap()
        try:
            plan = self.plans(trial)
        except ProctorError as error:
            now = self.setting.clock()
            return AttemptRecord(
                key=trial.key,
                number=lease.attempt,
                outcome=Outcome.INVALID,
                started_at=now,
                ended_at=now,
                failure=Failure(phase="read", type=type(error).__name__, message=str(error)),
                worker=self.setting.worker,
            )
        return await self._attempt(plan, trial, lease).run()

    def _attempt(self, plan: TaskTrialPlan, trial: PlannedTrial, lease: Lease) -> TaskAttempt:
        return TaskAttempt(self.setting, plan, trial, lease, self._spare)

    def expect(self, trial: PlannedTrial) -> None:
        """This trial comes next: its sandbox is started while others run."""
        self._spare.expect(trial)

    async def _start_ahead(self, trial: PlannedTrial) -> Started | None:
        setting, plan = self.setting, self.plans(trial)
        root = await setting.make_root(plan.task)
        if root.compose:  # its companions would run for as long as it waits
            return None
        env = environment(setting, plan)
        request = sandbox_request(setting, plan.task, trial, root, env, suffix="next")
        sandbox = setting.backend.sandbox(request)
        await sandbox.start()  # out of turn: who takes it holds a place among those that start already
        return request, sandbox

    async def close(self) -> None:
        """End what the back end keeps warm."""
        await self._spare.close()
        await self.setting.backend.close()
