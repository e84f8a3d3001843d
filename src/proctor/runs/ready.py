"""Whether a run could begin at all. Asked before anything of it is written."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from proctor.errors import SandboxError, UsageError
from proctor.model.plan import Plan
from proctor.model.run import Execution
from proctor.model.secret import without_values
from proctor.model.spec import Spec
from proctor.runs.secrets import check_secrets
from proctor.settings import Settings

if TYPE_CHECKING:
    from proctor.agents.base import Agent


def check_ready(
    spec: Spec,
    plan: Plan,
    settings: Settings,
    execution: Execution | None = Execution.TASK,
    environ: Mapping[str, str] = os.environ,
    *,
    here: bool = True,
) -> None:
    """Raise for what would stop every trial: no such sandbox, an agent without its model or endpoint.

    Where stored work is graded or judged again no agent is asked, and a judge needs no sandbox. Nor does a
    process that executes nothing: without `here` its machine's sandboxes do not matter.
    """
    check_secrets(spec, settings, environ)
    if not spec.tasks:
        return
    if execution not in {Execution.REGRADE, Execution.JUDGE}:
        check_agents(spec, plan, settings, environ)
    check_judges(spec, settings, environ)
    if execution is Execution.JUDGE or not here:
        return
    if settings.ca_bundle:
        from proctor.sandbox.certificates import read_ca_bundle

        read_ca_bundle(settings.ca_bundle)
    _check_sandbox(sandbox_name(spec, settings), int(time.monotonic()), host_root=spec.sandbox.host_root)


def engine_of(wanted: str, settings: Settings, *, place: str = "") -> Literal["local", "celery"]:
    """As a spec or a command wants it, else by whether a broker is set; UsageError when one is missing."""
    if wanted == "local" or (wanted == "auto" and not settings.broker):
        return "local"
    if not settings.broker:
        raise UsageError(
            f"{f'{place}: ' if place else ''}the engine 'celery' needs a broker: set PROCTOR_BROKER (or "
            "'broker' in proctor.toml) to redis://HOST:6379/0 or amqp://USER:PASSWORD@HOST//, and start "
            "workers with 'proctor worker'; 'local' executes on this machine"
        )
    from proctor.engine.celery.app import check_broker

    check_broker(settings.broker)
    return "celery"


def check_judges(spec: Spec, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """UsageError when a judge could not be asked: nobody wants to learn that after an hour of agents."""
    if not any(entry.judge for entry in spec.tasks) or spec.tape is not None:
        return
    from proctor.gateway.check import check_models
    from proctor.gateway.providers import Providers
    from proctor.runs.models import fitting_judges

    models = fitting_judges(spec, settings, environ)
    check_models(models, Providers.load(settings, environ), ca_bundle=settings.ca_bundle)


def check_gates(spec: Spec, plan: Plan, *, file: str = "") -> None:
    """UsageError for a rule of the spec's gates that could not be judged after the run."""
    if not spec.gates:
        return
    from proctor.model.run import RunInfo
    from proctor.model.trial import RunStatus
    from proctor.verdicts.gate.rules import read_rules
    from proctor.verdicts.gate.thresholds import check_fields

    info = RunInfo(
        id="the run", name=spec.name, kind=spec.kind, status=RunStatus.PENDING, created_at=0.0, seed=spec.seed
    )
    check_fields(read_rules(spec.gates, file=file), info, plan)


def sandbox_name(spec: Spec, settings: Settings) -> str:
    """The kind of sandbox that a run asks for; `auto` where none is chosen."""
    return settings.sandbox if spec.sandbox.backend == "auto" else spec.sandbox.backend


@lru_cache(maxsize=8)
def _check_sandbox(name: str, second: int, *, host_root: bool) -> None:
    """What is found holds for a second: a server asks for every run that somebody submits."""
    from proctor.sandbox.choose import check_host_root, choose, kind_of

    del second
    chosen = choose(name)
    if host_root:
        check_host_root(chosen)
    # `auto` chose one that has no obstacle.
    if name != "auto" and (obstacle := kind_of(chosen).obstacle()):
        raise SandboxError(
            f"sandboxes of the kind '{chosen}' do not work here: {obstacle}; 'proctor doctor' says more"
        )


def check_agents(spec: Spec, plan: Plan, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """UsageError for what an agent needs and does not have: nothing would be tried."""
    from proctor.agents.registry import make_agent
    from proctor.gateway.check import check_models
    from proctor.gateway.providers import Providers
    from proctor.runs.models import check_fitting, check_translators

    for at, entry in enumerate(spec.tasks):
        for name in entry.agents:
            agent = make_agent(name, without_values(entry.agent_options), entry.agent_code.get(name))
            _check_recordings(agent, plan, at, name)
    if spec.tape is None and (models := check_fitting(spec, settings, environ)):
        check_translators(spec, settings, environ)
        check_models(models, Providers.load(settings, environ), ca_bundle=settings.ca_bundle)


def _check_recordings(agent: Agent, plan: Plan, at: int, name: str) -> None:
    """An agent may know by a task's name alone that it cannot do it."""
    absent = getattr(agent, "absent", None)
    if absent is None:
        return
    tasks = dict.fromkeys(each.subject for each in plan.trials if each.body == at and each.agent == name)
    for task in tasks:
        if problem := absent(task):
            raise UsageError(problem)
