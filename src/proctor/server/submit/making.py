"""Make runs of what people submit, and say before what they would take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from proctor.errors import NotFoundError, ProctorError, SpecError
from proctor.model.describe import percentile
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.spec import Spec
from proctor.plan.estimate import estimate
from proctor.runs.planning import plan_spec
from proctor.runs.ready import check_agents, check_gates, check_judges
from proctor.runs.running import ReadyRun, create
from proctor.server.auth.caller import Caller
from proctor.server.auth.vault import environ_of
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.server.submit.reading import Submission, read
from proctor.settings import Settings
from proctor.spec.grammar import refuse_unhonoured
from proctor.store.database import Transaction
from proctor.store.service.ownership import DEFAULT, Owner
from proctor.store.service.usual import Key
from proctor.store.store import Store

MOST_TRIALS = 100_000
"""How many trials one submitted run may have."""


def settings_of(settings: Settings, project: str) -> Settings:
    """The settings of a project's runs: the server's own key of a model is for the default project alone."""
    return settings if project == DEFAULT else replace(settings, model_api_key="")


def submit(
    store: Store,
    state: State,
    caller: Caller,
    submission: Submission,
    *,
    project: str | None = None,
    start: bool = True,
    priority: int = 0,
    source: str = "",
    also: Callable[[Transaction, str], None] | None = None,
) -> ReadyRun:
    """Make a run, queued unless `start` is false; `also` writes more in the same transaction."""
    home = project_for(store, caller, project)
    check_quota(store, home)
    found = read(submission, store, state, caller)
    _check_size(found.spec)
    check_priority(caller, priority)
    owner = Owner(
        project=home,
        user=caller.user,
        wanted=start,
        priority=priority,
        parallel=submission.parallel,
        source=source,
        also=also,
    )
    environ = environ_of(store, state.vault, home, os.environ)
    with _about_the_spec():
        return create(
            found.spec,
            found.written,
            state.resources.for_project(settings_of(state.settings, home), environ),
            owner=owner,
            find=state.tasks.find,
        )


@contextmanager
def _about_the_spec() -> Iterator[None]:
    """An agent or experiment that does not exist is a mistake in the spec, not in the address."""
    try:
        yield
    except NotFoundError as error:
        raise SpecError(str(error)) from error


def project_for(store: Store, caller: Caller, project: str | None) -> str:
    """The project in which a caller makes something; a Problem when it is not theirs."""
    home = project or caller.home
    if not caller.sees(home) or not store.service.accounts.has_project(home):
        raise Problem("not_found", f"There is no project '{home}', or you are not in it")
    return home


def check_priority(caller: Caller, priority: int) -> None:
    """Refuse to let somebody's run go before everybody else's; an administrator may."""
    if priority > 0 and not caller.may("admin"):
        raise Problem("forbidden", "priority: above 0 a run goes before all others; an administrator sets it")


def check_quota(store: Store, project: str) -> None:
    """Refuse a run of a project that has spent what it may spend in a day."""
    limit = store.service.accounts.project(project).day_usd
    if limit is not None and (spent := store.service.accounts.spent_today_usd(project)) >= limit:
        raise Problem(
            "quota",
            f"The project '{project}' has spent ${spent:.2f} of ${limit:.2f} today (UTC); go on tomorrow",
        )


def preview(
    store: Store, state: State, caller: Caller, submission: Submission, *, project: str | None = None
) -> dict[str, Any]:
    """What a submission would run, how long and at what price as far as is known. Nothing is written."""
    home = project_for(store, caller, project)
    found = read(submission, store, state, caller)
    spec, settings = found.spec, settings_of(state.settings, home)
    environ = environ_of(store, state.vault, home, os.environ)
    refuse_unhonoured(spec)
    _check_size(spec)
    with _about_the_spec():
        plan = plan_spec(spec, settings, environ, find=state.tasks.find)
    errors: list[dict[str, str]] = []
    try:
        check_gates(spec, plan)
        if spec.tasks:
            check_agents(spec, plan, settings, environ)
            check_judges(spec, settings, environ)
    except ProctorError as error:
        errors.append({"where": "spec", "message": str(error)})
    seen = project or caller.project
    return {**_figures(store, state, spec, plan, seen), "warnings": list(plan.warnings), "errors": errors}


def _figures(store: Store, state: State, spec: Spec, plan: Plan, project: str | None) -> dict[str, Any]:
    subjects = {trial.subject for trial in plan.trials}
    times = _by_label(plan, store.service.usual.times(subjects, project))
    costs = _by_label(plan, store.service.usual.costs(subjects, project))
    return {
        "trials": len(plan),
        "by": {
            "task": dict(Counter(trial.subject for trial in plan.trials)),
            "agent": dict(Counter(trial.agent or "" for trial in plan.trials)),
            "model": dict(Counter(trial.model or "" for trial in plan.trials)),
        },
        "seconds": _range(times, lambda usual: estimate(plan, usual, parallel=spec.parallel).wall_s),
        "cost_usd": _range(costs, lambda usual: estimate(plan, {}, costs=usual).cost_usd or 0.0),
        "untimed": _without(plan.trials, times),
        "uncosted": _without([trial for trial in plan.trials if trial.model], costs),
        "unknown_prices": _unpriced(state.settings, spec),
    }


def _by_label(plan: Plan, known: Mapping[Key, list[float]]) -> dict[str, list[float]]:
    """What is known of trials of this task, agent and model, under their labels without the rollout."""
    return {
        _stem(trial): found
        for trial in plan.trials
        if (found := known.get((trial.subject, trial.agent or "", trial.model or "")))
    }


def _stem(trial: PlannedTrial) -> str:
    return trial.label.rpartition(" #")[0] or trial.label


def _without(trials: Iterable[PlannedTrial], known: Collection[str]) -> list[str]:
    return sorted({trial.subject for trial in trials if _stem(trial) not in known})


def _range(
    known: Mapping[str, list[float]], total: Callable[[Mapping[str, float]], float]
) -> dict[str, float] | None:
    """A total with its range: every trial as its quick tenth, its median and its slow tenth of late."""
    if not known:
        return None
    return {
        name: total({label: percentile(values, at) for label, values in known.items()})
        for name, at in (("low", 10), ("mid", 50), ("high", 90))
    }


def _unpriced(settings: Settings, spec: Spec) -> list[str]:
    from pathlib import Path

    from proctor.gateway.prices import Prices

    models = {model for entry in spec.tasks for model in entry.models if model}
    if not models:
        return []
    prices = Prices.load(Path(settings.prices).expanduser() if settings.prices else None)
    return sorted(model for model in models if prices.of(model) is None)


def _check_size(spec: Spec) -> None:
    """Refuse what is far too large before it is expanded."""
    asked = sum(
        entry.rollouts * len(entry.agents) * len(entry.models) * _sweep(entry.sweep) for entry in spec.tasks
    )
    asked += sum(body.samples or _sweep(body.sweep) for body in spec.experiments)
    if asked > MOST_TRIALS:
        raise Problem("too_large", f"The spec asks for {asked:,} trials; at most {MOST_TRIALS:,} are allowed")


def _sweep(values: Any) -> int:
    total = 1
    for each in values.values():
        total *= max(1, len(each))
    return total
