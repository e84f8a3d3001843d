"""One attempt at one task: prepare → agent → verify → collect, and the truth about how it ended."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from proctor.agents.base import BudgetExhausted
from proctor.agents.oracle import Nop
from proctor.errors import LastingSandboxError, ProviderError, SandboxError, TaskError, is_lasting
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.task import Step, VerifierSpec
from proctor.model.trial import Lease
from proctor.sandbox.base import Limits, Root, Sandbox, SandboxRequest
from proctor.threads import in_thread
from proctor.trial.collect import BaseFiles
from proctor.trial.judge.attempt import judge_attempt
from proctor.trial.performance.attempt import measure, obstacle
from proctor.trial.progress import LiveEvents, Logs, Phases
from proctor.trial.task import blame
from proctor.trial.task.agent import begin_trajectory, with_agent, work
from proctor.trial.task.declared import run_hooks, services_missing
from proctor.trial.task.models import AttemptModels, RunBudgetSpent, new_token
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.ready import Entrypoint, make_ready, wait_healthy
from proctor.trial.task.record import added, build_record, leaves_little, limits_asked
from proctor.trial.task.resources import ResourceLog
from proctor.trial.task.sandboxes import (
    NextSandbox,
    Policy,
    SandboxNetwork,
    for_agent,
    for_verifier,
    sandbox_request,
    workdir_of,
)
from proctor.trial.task.second_look import judge as second_look
from proctor.trial.task.setting import TaskSetting, environment
from proctor.trial.task.state import Base
from proctor.trial.task.workspace import commits, lay_out
from proctor.trial.verify import Verdict, combine, judge_in, left_to_judge, open_separate, too_low

if TYPE_CHECKING:
    from proctor.trial.control import Controls


class TaskAttempt:
    """One attempt. `run` never raises for what the subject does; cancellation passes through."""

    env: Mapping[str, str]
    """The variables of the task and the run."""
    workdir: str
    base: Base
    """What was there before the agent started."""
    network: SandboxNetwork

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
        self.lease = lease
        token = new_token()
        self.models = AttemptModels(setting.models, trial, lease, plan.agent, token)
        self.folder = setting.collector.folder(trial, lease.attempt)
        self.redactor = setting.redactor
        if self.models.used:
            self.redactor = setting.redactor.also("ATTEMPT_TOKEN", token)
        live = LiveEvents(partial(setting.note, lease)) if setting.note else None
        self.models.clock.on_change = live.stand_still if live else None
        heard = [partial(setting.on_log, trial)] if setting.on_log else []
        self.logs = Logs(self.folder / "logs", self.redactor, [*heard, live.log] if live else heard)
        self.phases = Phases(entered=live.phase if live else None)
        self.trajectory = begin_trajectory(self)
        self.outcome: Outcome | None = None
        self.failure: Failure | None = None
        self.reward: float | None = None
        self.parts: dict[str, float] = {}
        self.steps: dict[str, float | None] = {}
        self.rubrics: list[dict[str, object]] = []
        self.judge: Mapping[str, Any] = {}
        self.performance: Mapping[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.ledger: dict[str, Any] = {}
        self.notes: list[str] = [*self.task.warnings, *self.models.notes]
        self.models.notes = self.notes
        self.state: list[Artifact] = []
        """The agent's changes, before the tests were added."""
        self.artifacts: list[Artifact] = []
        self.system_changes: Mapping[str, Any] = {}
        self.changes: second_look.SystemChanges | None = None
        self.suspect = False
        self.redacted_state = False
        """Secrets were taken out of the saved state: it is not what the agent left."""
        self.scratch: Path | None = None
        """A folder that goes when the attempt ends."""
        self._sandbox: Sandbox | None = None
        self.entrypoint = Entrypoint(self.logs.write)
        self.resources = ResourceLog()
        self.root: Root | None = None
        self.limits: Limits | None = None

    @property
    def sandbox(self) -> Sandbox:
        """Where the agent works, once that has started."""
        assert self._sandbox is not None
        return self._sandbox

    async def run(self) -> AttemptRecord:
        """Prepare, agent, verify, collect, stop; then the record."""
        started_at = self.setting.clock()
        try:
            await self._work()
        except Exception as error:  # noqa: BLE001 - the harness's own fault is an outcome too, with its traceback
            self._end(blame.outcome_of(error), error)
        finally:
            await self._close()
        try:
            await self._judge()
            if leaves_little(self):  # a thread would cost more than the work
                record = build_record(self, started_at)
            else:
                record = await in_thread(build_record, self, started_at)
            await self.setting.collector.settle(self.folder)
        finally:
            self.setting.collector.forget(self.folder)
        return record

    _agent_works = work

    async def _judge(self) -> None:
        await judge_attempt(self)

    async def _work(self) -> None:
        self.env = environment(self.setting, self.plan)
        with self.phases.phase("image"):
            root = with_agent(await self.setting.make_root(self.task), self.plan.agent)
        with self.phases.phase("queue"):
            await self.setting.starts.acquire()
        try:
            with self.phases.phase("start"):
                await self._start(root)
        finally:
            self.setting.starts.release()
        with self.phases.phase("setup"):
            await self._set_up(root)
        if self.task.steps:
            await self._run_steps()
        else:
            self._take(await self._work_and_verify(None))

    async def _start(self, root: Root, state: Path | None = None) -> None:
        self.workdir = workdir_of(self.task, root)
        self.base = BaseFiles(root, self.plan.workspace, self.workdir)
        request = self.request(root, suffix=self.sandbox_name(), state=state)
        self.root, self.limits = root, request.limits
        self._sandbox = await self.next_sandbox.take(self.trial.key, request) if self.next_sandbox else None
        if self._sandbox is None:
            sandbox = self.setting.backend.sandbox(request)
            await sandbox.start()
            self._sandbox = sandbox
        self.resources.begin(self.sandbox, request.limits)
        begun = Policy(request.limits.network, request.limits.allowed_hosts)
        self.network = SandboxNetwork(self.sandbox, begun)
        if root.host:
            self.notes.append("host-root: made from this machine's own system; not reproducible elsewhere")

    def request(
        self, root: Root, *, suffix: str, state: Path | None = None, policy: Policy | None = None
    ) -> SandboxRequest:
        """What a sandbox of this attempt is to be."""
        return sandbox_request(
            self.setting, self.task, self.trial, root, self.env, suffix=suffix, state=state, policy=policy
        )

    def sandbox_name(self, what: str = "", step: Step | None = None) -> str:
        """The end of the name of one of the attempt's sandboxes, which is unique by it."""
        parts = (self.lease.attempt, self.lease.fence, what, self.task.steps.index(step) if step else "")
        return "-".join(str(part) for part in parts if part != "")

    async def _set_up(self, root: Root) -> None:
        if missing := services_missing(self.sandbox, self.task) or obstacle(self.sandbox, self.task):
            raise LastingSandboxError(missing)
        await lay_out(self.sandbox, self.plan.workspace, self.task, root, self.workdir)
        check = self.task.environment.healthcheck
        self.notes += await self.entrypoint.start(self.sandbox, root, checked=check is not None)
        if check:
            await wait_healthy(self.sandbox, check, cwd=self.workdir)
        await self.network.rehearse(self.task, self.setting.sandbox)

    async def _run_steps(self) -> None:
        """Each step is judged on its own; one below its minimum ends the task."""
        judged: list[Verdict] = []
        lost = 0
        for number, step in enumerate(self.task.steps):
            lost = len(self.task.steps) - number
            if not await self._step_begins(step, first=not number):
                break
            verdict = await self._work_and_verify(step)
            self.steps[step.name] = verdict.reward
            if verdict.reward is None:
                self._take(verdict)
                return
            judged.append(verdict)
            lost -= 1
            if self.outcome is Outcome.BUDGET_EXHAUSTED or self.interrupted or blame.is_broken(verdict):
                break
            if too_low(step.min_reward, verdict):
                lost = 0
                break
        whole = combine(self.task.reward_strategy, judged, lost)
        broken = judged[-1].failure if judged and blame.is_broken(judged[-1]) else None
        self._take(replace(whole, failure=broken))

    async def _step_begins(self, step: Step, *, first: bool) -> bool:
        """Make a step ready. One that cannot begin after the agent has worked there ends the task."""
        with self.phases.phase("setup"):
            try:
                await make_ready(self.sandbox, step, cwd=self.workdir, env=self.env, first=first)
            except (TaskError, SandboxError) as error:
                if first or await blame.is_hosts(error, self.sandbox):
                    raise
                self.notes.append(f"step '{step.name}' could not begin: {error}")
                return False
        return True

    async def _work_and_verify(self, step: Step | None) -> Verdict:
        """The agent works, then its work is judged, however the agent ended."""
        await self.network.enter(for_agent(self.task, self.setting.sandbox, step))
        with self.phases.phase("agent"):
            await self._run_agent(step)
        with self.phases.phase("collect"):
            for what, keep in (
                ("the collect hooks could not be run", self._run_hooks),
                ("the agent's changes could not be kept", self._keep_state),
                ("the declared files could not be kept", self._keep_files),
            ):
                try:
                    await keep(step)
                except Exception as error:
                    if await blame.is_hosts(error, self.sandbox):
                        raise
                    self.notes.append(f"{what}: {self.redactor.text(str(error))}")
        return await self._verdict(step)

    async def _run_hooks(self, step: Step | None) -> None:
        spec = self.verifier_of(step)
        last = spec.separate and (step is None or step is self.task.steps[-1])
        if spec.collect:
            self.notes += await run_hooks(
                self.sandbox, spec.collect, cwd=self.workdir, env=self.env, last=last
            )

    async def _keep_state(self, _: Step | None) -> None:
        self.state, notes = await self.setting.collector.state(
            self.sandbox, self.workdir, self.base, self.folder, self.redactor, commits(self.task)
        )
        self.notes += notes
        self.redacted_state = bool(notes)

    async def _keep_files(self, step: Step | None) -> None:
        self.artifacts += await self.setting.collector.collect(
            self.sandbox, self.task, self.workdir, self.folder, self.redactor, step
        )

    async def _run_agent(self, step: Step | None) -> None:
        policy = for_agent(self.task, self.setting.sandbox, step)
        try:
            result = await self.models.run(
                partial(self._agent_works, step), self.sandbox, hosted_tools=policy.network == "public"
            )
        except TimeoutError as error:
            self._end(Outcome.AGENT_TIMEOUT, error, f"the agent did not end within {error} s")
        except BudgetExhausted as error:
            self._end(Outcome.BUDGET_EXHAUSTED, error)
        except SandboxError as error:
            untried = self.controls is None or self.models.never_answered
            if untried or await blame.is_hosts(error, self.sandbox):
                raise
            self.interrupted = True
            self._end(Outcome.AGENT_ERROR, error)
        except (ProviderError, TaskError, RunBudgetSpent):
            raise
        except Exception as error:  # noqa: BLE001 - it failed, or a bug of its own class is the agent's failure
            self._end(Outcome.AGENT_ERROR, error)
        else:
            self.notes.extend(result.notes)
            self.usage = added(self.usage, result.usage, self.notes)

    async def _verdict(self, step: Step | None) -> Verdict:
        """What the tests say. Where they break, a control decides whether the agent is the reason."""
        if self.task.needs_judge:
            return left_to_judge(self)
        try:
            verdict = await self._verify(step)
        except (TaskError, ProviderError):
            raise
        except Exception as error:
            if self.controls is None or await blame.is_hosts(error, self.sandbox):
                raise
            failure = blame.failure_of(error, "verify", self.redactor)
            verdict = Verdict(outcome=Outcome.VERIFIER_ERROR, failure=failure)
        if verdict.reward is not None and (performance := self.verifier_of(step).performance):
            return await measure(self, performance, verdict)
        if verdict.reward is not None or self.controls is None:
            return verdict
        if self.outcome is not None and not self.interrupted:
            self.notes.append(
                f"the tests could not judge what the agent left, which counts as 0: {blame.said(verdict)}"
            )
            return verdict
        with self.phases.phase("control"):
            verdict, control = await blame.compare(self, step, verdict)
        self.notes.append(control.in_words)
        self.artifacts.append(self.setting.collector.keep(self.folder, "control.json", control.to_json()))
        if verdict.reward is None:
            self.outcome = None
        return verdict

    async def _verify(self, step: Step | None) -> Verdict:
        """Judge the work. Making a separate verifier's sandbox is not the verifier's time."""
        policy = for_verifier(self.task, self.setting.sandbox, step)
        if not self.verifier_of(step).separate:
            await self.network.enter_quiet(policy)
            with self.phases.phase("verify"):
                found = self.changes = await second_look.look(self, step, policy)
                self.system_changes = found.summary
                verdict = await judge_in(self, self.sandbox, self.workdir, step, fresh=found.fresh)
            return await second_look.confirm(self, found, verdict, step, policy)
        with self.phases.phase("start"):
            apart, cwd = await open_separate(self, step, policy)
        try:
            with self.phases.phase("verify"):
                return await judge_in(self, apart, cwd, step)
        finally:
            with self.phases.phase("stop"):
                await apart.stop()

    def verifier_of(self, step: Step | None) -> VerifierSpec:
        """How a step is judged, or the task."""
        return step.verifier if step else self.task.verifier

    def tests_of(self, step: Step | None) -> tuple[Path, ...]:
        """The folders of a step's tests, or of the task's."""
        return tuple(step.tests) if step else (self.task.tests or self.task.path / "tests",)

    def state_file(self) -> Path | None:
        """The saved state of the agent's work, where it is kept."""
        return self.folder / "state.tar" if self.state and not self.redacted_state else None

    def _take(self, verdict: Verdict) -> None:
        """Join both ends: how the agent ended gives the name, the verifier gives the reward."""
        self.parts = dict(verdict.parts)
        if self.outcome is None:
            self.outcome, self.reward = verdict.outcome, verdict.reward
            self.failure = verdict.failure
        else:
            self.reward = verdict.reward if verdict.reward is not None else 0.0

    def _end(self, outcome: Outcome, error: BaseException, message: str = "") -> None:
        failure = blame.failure_of(error, self.phases.current, self.redactor, message)
        if outcome.retryable and is_lasting(error):
            failure = structs.replace(failure, type=Failure.lasting_type(failure.type))
        self.outcome, self.failure = outcome, failure

    async def _close(self) -> None:
        """Stop the sandbox; then it knows all that it has used."""
        self.resources.end()
        await self.entrypoint.stop()
        if self._sandbox is not None:
            with self.phases.phase("stop"):
                try:
                    await self.sandbox.stop()
                except SandboxError as error:
                    self.notes.append(self.redactor.text(str(error)))
            info = self.sandbox.info()
            self.ledger = {**info.ledger, "backend": info.backend, "limits": limits_asked(self.limits)}
            self.ledger["enforced"] = dict(info.enforced)
            self.notes += blame.own_limits(self.ledger)
            # Killed by the host for memory or disk, or cut off by it: it cannot be judged.
            if self.outcome is not Outcome.PASSED and (lost := blame.lost_to_host(self.ledger)):
                (self.outcome, self.failure), self.reward = lost, None
        if self.scratch:
            await in_thread(shutil.rmtree, self.scratch, ignore_errors=True)
        self.notes += self.logs.close()
