"""One attempt at a step-by-step task: two sandboxes, a play between them, a verdict when the agent has gone.

The agent's code runs in the attempt's sandbox, and nothing of the task is there. The task's code (setup,
actions, validator) runs in another one, and nothing of the agent's is there but the arguments of its actions.
The first knows no way to the second: each has a line to the harness, which alone decides what passes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from proctor.agents.base import AgentResult, BudgetExhausted, ModelAccess
from proctor.agents.episodes.agent import INSIDE, PROGRAMS, EpisodeAgent
from proctor.errors import HostError, SandboxError, TaskError
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome
from proctor.model.record import Failure
from proctor.model.task import EpisodeSpec, Step
from proctor.sandbox.base import Root, Sandbox
from proctor.trial.episode.line import Gone, Line
from proctor.trial.episode.play import AgentRaised, Ending, EnvironmentBroken, Play
from proctor.trial.task import blame
from proctor.trial.task.agent import with_agent
from proctor.trial.task.sandboxes import for_verifier
from proctor.trial.task.setting import environment
from proctor.trial.task_trial import TaskAttempt
from proctor.trial.verify import Verdict

_ACTION_BYTES = 1 << 20
_RESULT_BYTES = 16 << 20
_LOG = "agent.txt"
_ENVIRONMENT_LOG = "environment.txt"


class EpisodeAttempt(TaskAttempt):
    """One attempt at a task of the kind `episode`."""

    _world: Sandbox | None = None
    """Where the task's code runs."""
    _agent: Line | None = None
    _environment: Line | None = None
    play: Play | None = None
    ending: Ending | None = None

    @property
    def agent(self) -> Line:
        """The line to the agent's program."""
        assert self._agent is not None
        return self._agent

    @property
    def environment(self) -> Line:
        """The line to the task's program."""
        assert self._environment is not None
        return self._environment

    async def _work(self) -> None:
        self.env = environment(self.setting, self.plan)
        with self.phases.phase("image"):
            root = await self.setting.make_root(self.task)
        with self.phases.phase("queue"):
            await self.setting.starts.acquire()
        try:
            with self.phases.phase("start"):
                await self._start_both(root)
        finally:
            self.setting.starts.release()
        with self.phases.phase("setup"):
            await self._set_up_both()
        with self.phases.phase("agent"):
            await self._run_agent(None)
        with self.phases.phase("verify"):
            self._take(await self._judged())

    async def _start_both(self, root: Root) -> None:
        task = self.task.path.absolute()
        binds = {f"{INSIDE}/episode": PROGRAMS, f"{INSIDE}/tasks/{self._episode.id}": task}
        request = self.request(
            replace(root, binds={**root.binds, **binds}),
            suffix=self.sandbox_name("environment"),
            policy=for_verifier(self.task, self.setting.sandbox),
        )
        world = self.setting.backend.sandbox(request)
        starting = asyncio.create_task(world.start())
        try:
            await self._start(with_agent(root, self.plan.agent))
        finally:
            await asyncio.wait({starting})
            if not starting.cancelled() and starting.exception() is None:
                self._world = world
        starting.result()

    async def _set_up_both(self) -> None:
        """Start both programs, and the environment with them; none of the agent's code runs yet."""
        agent = self.plan.agent
        if not isinstance(agent, EpisodeAgent):
            raise TaskError(f"{self.task.name} is a step-by-step task, which needs the agent 'episode'")
        assert self._world is not None
        most = self.setting.allowance.output_bytes
        self._agent = Line(self.sandbox, max_bytes=_ACTION_BYTES, total_bytes=most)
        self._environment = Line(self._world, max_bytes=_RESULT_BYTES, total_bytes=most)
        limit_s = self.task.verifier.timeout_s
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                group.create_task(self._open(self.agent, "agent_program", agent.place, log=_LOG))
                group.create_task(self._set_up_environment())
        except TimeoutError:
            raise TaskError(f"{self.task.path}: the setup did not end within {limit_s:g} s") from None
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _set_up_environment(self) -> None:
        """Make the environment, and see that its validator works before the agent begins."""
        await self._open(self.environment, "environment_program", log=_ENVIRONMENT_LOG)
        place = {"root": INSIDE, "name": self._episode.id}
        task = _described(self._episode, self.trial.seed)
        try:
            ready = await self.environment.ask({"call": "setup", **place, "task": task})
        except (Gone, BudgetExhausted) as error:
            raise TaskError(f"{self.task.path}: the setup failed: {error}") from error
        if problem := ready.get("error") or ready.get("broken"):
            part = "setup" if "error" in ready else "validator"
            said = problem.get("traceback") or f"{problem.get('type')}: {problem.get('message')}"
            raise TaskError(f"{self.task.path}: the {part} failed: {said}")
        self.actions, self.visible_state = ready.get("actions", {}), ready.get("visible_state")
        if not self.actions:
            raise TaskError(
                f"{self.task.path / self._episode.actions}: it has no functions: there are no actions"
            )

    async def _agent_works(self, step: Step | None, access: ModelAccess) -> AgentResult:
        """Let the agent play, within its time; TimeoutError with that time."""
        del step
        limit_s = self._limit_s()
        self.trajectory.add("user", self.task.instruction)
        self.play = Play(
            self.task,
            self.agent,
            self.environment,
            self.actions,
            self.visible_state,
            self.trajectory,
            access.env,
        )
        try:
            async with asyncio.timeout(limit_s) as limit:
                self.ending = await self.play.run()
        except TimeoutError as error:
            if not limit.expired():
                raise HostError(f"the sandboxes of the episode did not answer in time: {error}") from error
            raise TimeoutError(f"{limit_s:g}") from error
        finally:
            await self.agent.end()
        if self.ending.reason.endswith("_exhausted"):
            raise BudgetExhausted(self.ending.message)
        return AgentResult(usage={"steps": self.play.steps, "tool_calls": self.play.tool_calls})

    def _limit_s(self) -> float:
        return self.setting.timeout_s or self.task.agent.timeout_s

    async def _open(self, line: Line, program: str, *arguments: str, log: str) -> None:
        """Start a program. A task that is deterministic gets the same order of sets on the same seed."""
        seed = str(self.trial.seed % 2**32) if self._episode.deterministic else "random"
        env = {"PYTHONHASHSEED": seed}
        await line.open(program, *arguments, env=env, log=partial(self.logs.write, log))

    async def _run_agent(self, step: Step | None) -> None:
        await super()._run_agent(step)
        if self.failure is None:
            return
        kind = {
            Outcome.BUDGET_EXHAUSTED: self.ending.reason if self.ending else "budget_exhausted",
            Outcome.AGENT_TIMEOUT: self._kind_of_timeout(),
        }.get(self.outcome or Outcome.PASSED)
        if kind:
            self.failure = structs.replace(self.failure, type=kind)

    def _kind_of_timeout(self) -> str:
        """An agent that used half of its time without an answer hangs; others are slow."""
        play = self.play
        limit_s = self._limit_s()
        if play is None or play.agent_since is None:
            return "timeout"
        return "non_termination" if play.clock() - play.agent_since > limit_s / 2 else "timeout"

    async def _judged(self) -> Verdict:
        """The verdict. A success is judged again, apart, when no process of the agent is left."""
        ending = self.ending
        if ending is None or ending.failure is not None:
            failure = None
            if ending and ending.failure:
                failure = Failure(
                    phase="agent", type=ending.failure, message=self.redactor.text(ending.message)
                )
            return Verdict(outcome=Outcome.FAILED, reward=0.0, parts={"reward": 0.0}, failure=failure)
        limit_s = self.task.verifier.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                answer = await self.environment.ask({"call": "verdict"})
        except TimeoutError:
            return _unjudged(Outcome.VERIFIER_TIMEOUT, f"the validator did not end within {limit_s:g} s")
        except (Gone, BudgetExhausted) as error:
            return _unjudged(Outcome.VERIFIER_ERROR, f"the validator broke when it judged again: {error}")
        verdict = answer.get("verdict")
        if not isinstance(verdict, dict) or not verdict.get("ok"):
            said = "the validator was satisfied and, asked again of the same state, is not"
            return _unjudged(Outcome.VERIFIER_ERROR, said)
        return Verdict(outcome=Outcome.PASSED, reward=1.0, parts={"reward": 1.0})

    def _end(self, outcome: Outcome, error: BaseException, message: str = "") -> None:
        """What the task's code did with the agent's actions is the agent's: it worked untouched."""
        if isinstance(error, EnvironmentBroken):
            failure = Failure(phase="agent", type=ENVIRONMENT_BROKEN, message=self.redactor.text(str(error)))
            self.outcome, self.failure = Outcome.FAILED, failure
            return
        super()._end(outcome, error, message)
        if isinstance(error, AgentRaised) and self.failure:
            self.failure = structs.replace(self.failure, traceback="")

    async def _close(self) -> None:
        if self._world is not None:
            with self.phases.phase("stop"), suppress(SandboxError):
                await self._world.stop()
            if self.outcome is not Outcome.PASSED and (lost := blame.lost_to_host(self._world.info().ledger)):
                (self.outcome, self.failure), self.reward = lost, None
        await super()._close()
        for line in (self._agent, self._environment):
            if line:
                await line.close()

    @property
    def _episode(self) -> EpisodeSpec:
        assert self.task.episode is not None
        return self.task.episode


def _described(episode: EpisodeSpec, seed: int) -> dict[str, Any]:
    """What the environment's program is told of the task."""
    return {
        "seed": seed,
        "setup": episode.setup,
        "actions": episode.actions,
        "validator": episode.validator,
        "filesystem_roots": episode.filesystem_roots,
        "network_hosts": episode.network_hosts,
    }


def _unjudged(outcome: Outcome, message: str) -> Verdict:
    return Verdict(outcome=outcome, failure=Failure(phase="verify", type="ValidatorBroken", message=message))
