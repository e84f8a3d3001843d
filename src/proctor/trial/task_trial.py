"""One attempt at one task: prepare → agent → verify → collect, and the truth about how it ended."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.agents.base import AgentFailed, BudgetExhausted
from proctor.agents.nop import Nop
from proctor.errors import (
    ImageError,
    LastingSandboxError,
    ProctorError,
    ProviderError,
    SandboxError,
    TaskError,
    is_lasting,
)
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.task import Step
from proctor.model.trial import Lease
from proctor.sandbox.base import Limits, Root, Sandbox, leave
from proctor.trial.collect import base_of
from proctor.trial.live import Live
from proctor.trial.logs import Logs
from proctor.trial.phases import Phases
from proctor.trial.task import network
from proctor.trial.task.agent import agent_context, begin_trajectory
from proctor.trial.task.begin import check_program
from proctor.trial.task.blame import compare, is_broken, is_hosts, said, unjudged
from proctor.trial.task.declared import run_hooks, services_missing
from proctor.trial.task.entrypoint import Entrypoint
from proctor.trial.task.limits_reached import host_lacked, own_limits
from proctor.trial.task.next_sandbox import NextSandbox
from proctor.trial.task.pinned import image_of, limits_asked
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.request import sandbox_request, workdir_of
from proctor.trial.task.second_look import judge as second_look
from proctor.trial.task.setting import TaskSetting, environment, filled
from proctor.trial.task.steps import Place, combine, make_ready, too_low, wait_healthy
from proctor.trial.task.usage import added, usage_of
from proctor.trial.task.workspace import commits
from proctor.trial.verify import Verdict, verify, verify_rubrics

if TYPE_CHECKING:
    from proctor.trial.control import Controls


class TaskAttempt:
    """One attempt. `run` never raises for what the subject does; cancellation passes through."""

    def __init__(
        self,
        setting: TaskSetting,
        plan: TaskTrialPlan,
        trial: PlannedTrial,
        lease: Lease,
        next_sandbox: NextSandbox | None = None,
        controls: Controls | None = None,
    ) -> None:
        self.setting = setting
        self.next_sandbox = next_sandbox
        # One that does nothing breaks nothing: its own attempt is as good as a control.
        self.controls = None if plan.agent.name == Nop.name else controls
        self.interrupted = False
        """Whether the sandbox failed while the agent worked in it, and not provably through the host."""
        self.plan = plan
        self.task = plan.task
        self.trial = trial
        self.access = setting.give_access(trial, lease)
        self.lease = lease
        self.folder = setting.collector.folder(trial, lease.attempt)
        self.redactor = setting.redactor
        live = Live(partial(setting.note, lease)) if setting.note else None
        heard = [partial(setting.on_log, trial)] if setting.on_log else []
        self.logs = Logs(self.folder / "logs", self.redactor, [*heard, live.log] if live else heard)
        self.phases = Phases(entered=live.phase if live else None)
        self.trajectory = begin_trajectory(setting, plan, trial, lease)
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
        """The agent's changes, before the tests were added."""
        self.artifacts: list[Artifact] = []
        self.system_changes: Mapping[str, Any] = {}
        self.suspect = False
        self.redacted_state = False
        """Secrets were taken out of the saved state: it is not what the agent left."""
        self.scratch: Path | None = None
        """A folder that goes when the attempt ends."""
        self.sandbox: Sandbox | None = None
        self.entrypoint = Entrypoint(self.logs.write)
        self.network: network.Phases | None = None
        self.root: Root | None = None
        self.limits: Limits | None = None

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
            verdict = await self._work_and_verify(self.sandbox, env, None)
            self._take(verdict)

    async def _set_up(self, sandbox: Sandbox, root: Root) -> None:
        if missing := services_missing(sandbox, self.task):
            raise LastingSandboxError(missing)
        made = self.workdir == root.workdir
        await self.plan.workspace.lay_out(sandbox, self.workdir, made=made)
        if loose := self.task.environment.loose_files:
            await sandbox.upload(loose, self.workdir)
        check = self.task.environment.healthcheck
        self.notes += await self.entrypoint.start(sandbox, root, checked=check is not None)
        if check:
            await wait_healthy(sandbox, check, Place(cwd=self.workdir, env={}, user=None))
        assert self.network is not None
        await self.network.rehearse(self.task, self.setting.sandbox)

    async def _start(self, root: Root, env: Mapping[str, str], state: Path | None = None) -> None:
        self.workdir = workdir_of(self.task, root)
        self.base = base_of(root, self.plan.workspace, self.workdir)
        suffix = f"{self.lease.attempt}-{self.lease.fence}"
        request = sandbox_request(self.setting, self.task, self.trial, root, env, suffix=suffix, state=state)
        self.root, self.limits = root, request.limits
        sandbox = await self.next_sandbox.take(self.trial.key, request) if self.next_sandbox else None
        if sandbox is None:
            sandbox = self.setting.backend.sandbox(request)
            await sandbox.start()
        self.sandbox = sandbox
        begun = network.Policy(request.limits.network, request.limits.allowed_hosts)
        self.network = network.Phases(sandbox, begun)
        if root.host:
            self.notes.append("host-root: made from this machine's own system; not reproducible elsewhere")

    async def _run_steps(self, sandbox: Sandbox, env: Mapping[str, str]) -> None:
        """Each step is judged on its own; one below its minimum ends the task."""
        judged: list[Verdict] = []
        lost = 0
        for number, step in enumerate(self.task.steps):
            lost = len(self.task.steps) - number
            if not await self._step_begins(sandbox, env, step, first=not number):
                break
            verdict = await self._work_and_verify(sandbox, env, step)
            self.steps[step.name] = verdict.reward
            if verdict.reward is None:
                self._take(verdict)
                return
            judged.append(verdict)
            lost -= 1
            if self.outcome is Outcome.BUDGET_EXHAUSTED or self.interrupted or is_broken(verdict):
                break
            if too_low(step.min_reward, verdict):
                lost = 0
                break
        whole = combine(self.task.reward_strategy, judged, lost)
        broken = judged[-1].failure if judged and is_broken(judged[-1]) else None
        self._take(replace(whole, failure=broken))

    async def _step_begins(
        self, sandbox: Sandbox, env: Mapping[str, str], step: Step, *, first: bool
    ) -> bool:
        """Make a step ready. One that cannot begin after the agent has worked there ends the task."""
        place = Place(cwd=self.workdir, env=env, user=step.agent.user)
        with self.phases.phase("setup"):
            try:
                await make_ready(sandbox, step, place, first=first)
            except (TaskError, SandboxError) as error:
                if first or await is_hosts(error, sandbox):
                    raise
                self.notes.append(f"step '{step.name}' could not begin: {error}")
                return False
        return True

    async def _work_and_verify(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> Verdict:
        """The agent works, then its work is judged, however the agent ended."""
        assert self.network is not None
        await self.network.enter(network.for_agent(self.task, self.setting.sandbox, step))
        with self.phases.phase("agent"):
            await self._run_agent(sandbox, env, step)
        with self.phases.phase("collect"):
            for what, keep in (
                ("the collect hooks could not be run", self._run_hooks),
                ("the agent's changes could not be kept", self._keep_state),
                ("the declared files could not be kept", self._keep_files),
            ):
                try:
                    await keep(sandbox, env, step)
                except Exception as error:
                    if await is_hosts(error, sandbox):
                        raise
                    self.notes.append(f"{what}: {self.redactor.text(str(error))}")
        return await self._verdict(sandbox, env, step)

    async def _keep_state(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> None:
        del env, step
        self.state, notes = await self.setting.collector.state(
            sandbox, self.workdir, self.base, self.folder, self.redactor, commits(self.task)
        )
        self.notes += notes
        self.redacted_state = bool(notes)

    async def _keep_files(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> None:
        del env
        self.artifacts += await self.setting.collector.collect(
            sandbox, self.task, self.workdir, self.folder, self.redactor, step
        )

    async def _run_hooks(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> None:
        spec = step.verifier if step else self.task.verifier
        last = spec.separate and (step is None or step is self.task.steps[-1])
        if spec.collect:
            self.notes += await run_hooks(sandbox, spec.collect, cwd=self.workdir, env=env, last=last)

    async def _run_agent(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> None:
        context = agent_context(
            self.setting,
            self.plan,
            self.trial,
            step,
            self.workdir,
            env,
            self.access,
            self.trajectory,
            self.logs.write,
        )
        await check_program(self.plan.agent, self.task, sandbox, self.trial.model, context)
        timeout_s = context.timeout_s
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
        except SandboxError as error:
            if self.controls is None or await is_hosts(error, sandbox):
                raise
            self.interrupted = True
            self._end(Outcome.AGENT_ERROR, error)
        except (ProviderError, TaskError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the agent's own class is the agent's failure
            self._end(Outcome.AGENT_ERROR, error)
        else:
            self.notes.extend(result.notes)
            self.usage = added(self.usage, result.usage, self.notes)

    async def _verdict(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> Verdict:
        """What the tests say. Where they break, a control decides whether the agent is the reason."""
        try:
            verdict = await self._verify(sandbox, env, step)
        except (TaskError, ProviderError):
            raise
        except Exception as error:
            if self.controls is None or await is_hosts(error, sandbox):
                raise
            verdict = unjudged(error, self.redactor)
        if verdict.reward is not None or self.controls is None:
            return verdict
        if self.outcome is not None and not self.interrupted:
            self.notes.append(
                f"the tests could not judge what the agent left, which counts as 0: {said(verdict)}"
            )
            return verdict
        with self.phases.phase("control"):
            verdict, control = await compare(self.controls, self.plan, self.trial, step, sandbox, verdict)
        self.notes.append(control.in_words)
        self.artifacts.append(self.setting.collector.keep(self.folder, "control.json", control.to_json()))
        if verdict.reward is None:
            self.outcome = None
        return verdict

    async def _verify(self, sandbox: Sandbox, env: Mapping[str, str], step: Step | None) -> Verdict:
        """Judge the work. Making a separate verifier's sandbox is not the verifier's time."""
        spec = step.verifier if step else self.task.verifier
        policy = network.for_verifier(self.task, self.setting.sandbox, step)
        if not spec.separate:
            assert self.network is not None
            await self.network.enter_quiet(policy)
            with self.phases.phase("verify"):
                found = await second_look.look(self, sandbox, env, step, policy)
                self.system_changes = found.summary
                verdict = await self.judge_in(sandbox, self.workdir, env, step, fresh=found.fresh)
            return await second_look.confirm(self, found, verdict, env, step, policy)
        from proctor.trial.task.separate import open_separate

        with self.phases.phase("start"):
            apart, cwd = await open_separate(
                self.setting, self.plan, step, policy, self.trial, self.lease, sandbox, self.workdir, env
            )
        try:
            with self.phases.phase("verify"):
                return await self.judge_in(apart, cwd, env, step)
        finally:
            with self.phases.phase("stop"):
                await apart.stop()

    def state_file(self) -> Path | None:
        """The saved state of the agent's work, where it is kept."""
        return self.folder / "state.tar" if self.state and not self.redacted_state else None

    def scratch_file(self, name: str) -> Path:
        """A file for as long as the attempt; outside of the run folder where it may hold secrets."""
        if self.scratch is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            above = None if self.redactor else self.folder
            self.scratch = Path(tempfile.mkdtemp(prefix=".proctor-", dir=above))
        return self.scratch / name

    def tests_of(self, step: Step | None) -> tuple[Path, ...]:
        """The folders of a step's tests, or of the task's."""
        return tuple(step.tests) if step else (self.task.tests or self.task.path / "tests",)

    def step_number(self, step: Step | None) -> str:
        """What makes the name of a step's own sandbox unique."""
        return f"-{self.task.steps.index(step)}" if step else ""

    async def judge_in(
        self,
        judged_in: Sandbox,
        cwd: str,
        env: Mapping[str, str],
        step: Step | None,
        *,
        fresh: Sequence[str] = (),
        again: bool = False,
    ) -> Verdict:
        """Run the tests in a sandbox and read the verdict."""
        task = self.task
        spec = step.verifier if step else task.verifier
        verifier_env = {**env, **filled(self.setting, self.plan, spec.env, "verifier")}
        keep = self.folder / "verifier"
        if step:
            keep /= step.name
        if again:
            keep /= second_look.PHASE
        tests = self.tests_of(step)
        if task.kind == "prepared" and task.rubrics:
            verdict, self.rubrics = await verify_rubrics(
                judged_in,
                tests=tests[-1],
                rubrics=task.rubrics,
                spec=spec,
                env=verifier_env,
                cwd=cwd,
                logs=self.logs,
                fresh=fresh,
            )
            return verdict
        return await verify(
            judged_in,
            tests=() if spec.bundled else tests,
            spec=spec,
            env=verifier_env,
            cwd=cwd,
            logs=self.logs,
            keep=keep,
            fresh=fresh,
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
        name = type(error).__name__
        self.failure = Failure(
            phase=self.phases.current,
            type=Failure.lasting_type(name) if outcome.retryable and is_lasting(error) else name,
            message=self.redactor.text(message or str(error)),
            traceback="" if expected else self.redactor.text("".join(traceback.format_exception(error))),
        )

    async def _close(self) -> None:
        """Stop the sandbox; then it knows all that it has used."""
        await self.entrypoint.stop()
        if self.sandbox is not None:
            with self.phases.phase("stop"), suppress(SandboxError):
                await leave(self.sandbox)
            info = self.sandbox.info()
            self.ledger = {
                **info.ledger,
                "backend": info.backend,
                "limits": limits_asked(self.limits),
                "enforced": dict(info.enforced),
            }
            self.notes += own_limits(self.ledger)
            self._blame_host()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self.notes += self.logs.close()

    def _blame_host(self) -> None:
        """Killed by the host for memory or disk, or cut off by it: it cannot be judged."""
        if self.outcome is Outcome.PASSED:
            return
        if lacked := host_lacked(self.ledger):
            self.outcome, self.reward = Outcome.STARVED, None
            self.failure = Failure(phase="run", type="Starved", message=lacked)
        elif lost := self.ledger.get("network_lost"):
            self.outcome, self.reward = Outcome.SANDBOX_ERROR, None
            self.failure = Failure(phase="run", type="SandboxError", message=f"the network was lost: {lost}")

    def _record(self, started_at: float) -> AttemptRecord:
        outcome = self.outcome or Outcome.SANDBOX_ERROR
        files = self.setting.collector.write(
            self.folder, self.redactor, trajectory=self._told(), rubrics=self.rubrics
        )
        record = AttemptRecord(
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
            usage=usage_of(self.usage, self.trajectory),
            artifacts=(*self.state, *self.artifacts, *files),
            notes=tuple(self.notes),
            worker=self.setting.worker,
            image=image_of(self.root),
            system_changes=self.system_changes,
            suspect=self.suspect,
        )
        return self.redactor.record(record)

    def _told(self) -> bytes:
        """The trajectory without secrets: text by text, because escapes would hide some, then as a whole."""
        self.trajectory.steps = self.redactor.value(self.trajectory.steps)
        return self.redactor.whole(self.trajectory.to_json())

    def _metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {"rewards": self.parts, "steps": self.steps, "rubrics": self.rubrics}
        return {name: value for name, value in found.items() if value or name == "rewards"}
