"""The models of a run's agents: whether they fit, what they may cost, and the gateway or tape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.agents.base import API_NAMES, Agent
from proctor.errors import NotFoundError, UsageError
from proctor.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from proctor.gateway.app import Gateway
    from proctor.gateway.prices import Prices
    from proctor.gateway.providers import Providers
    from proctor.gateway.replay import Replay
    from proctor.model.plan import PlannedTrial
    from proctor.model.record import AttemptRecord
    from proctor.model.spec import Spec
    from proctor.model.trial import Lease
    from proctor.runs.process_resources import Resources
    from proctor.runs.running import ReadyRun
    from proctor.store.spending import Budget
    from proctor.store.store import Store
    from proctor.trial.redact import Redactor
    from proctor.trial.task.models import ModelGateway

_UNITS = ("usd", "tokens", "requests")
_BLOB = "blob:"
"""How a tape is named that was a file when the run was made."""


def check_fitting(
    spec: Spec, settings: Settings, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The models that agents of a spec reach by the gateway; UsageError for one that cannot be used so.

    An agent that says nothing about the APIs it speaks may have a way of its own to its model.
    """
    from proctor.agents.registry import make_agent
    from proctor.gateway.providers import Providers
    from proctor.model.secret import without_values

    found: dict[str, None] = {}
    named = any(model for entry in spec.tasks for model in entry.models)
    providers = Providers.load(settings, environ) if named else Providers(())
    prices = _prices(settings) if _in_dollars(spec, settings) else None
    for at, entry in enumerate(spec.tasks):
        place = spec.place("tasks", at)
        where = f"{place}: " if place else ""
        for name in entry.agents:
            agent = make_agent(name, without_values(entry.agent_options), entry.agent_code.get(name))
            if getattr(agent, "needs_model", False) and None in entry.models:
                raise UsageError(f"{where}agent '{name}' needs a model: set 'model' for it in the spec")
            for model in entry.models:
                problem = speaks(agent, model, providers)
                if problem and (getattr(agent, "needs_model", False) or _says(agent)):
                    raise UsageError(f"{where}{problem}")
                if model and problem == "":
                    found[model] = None
    for model in found:
        if prices:
            prices.check(model)
        check_budgets(spec, settings, model)
    return tuple(found)


def check_budgets(spec: Spec, settings: Settings, model: str) -> None:
    """UsageError for a budget under which not one call of a model fits: every attempt would end at once."""
    if spec.tape:
        return
    for source, prefix in ((spec, "budget"), (spec, "attempt_budget"), (settings, "day_budget")):
        amounts = {f"{prefix}_{unit}": getattr(source, f"{prefix}_{unit}") for unit in _UNITS}
        place = spec.place if source is spec else lambda name: f"setting {name}"
        _check_amounts(amounts, model, settings, place)


def _check_amounts(
    amounts: Mapping[str, float | None], model: str, settings: Settings, place: Callable[[str], str]
) -> None:
    given = {name: value for name, value in amounts.items() if value is not None}
    if not given:
        return
    prices = _prices(settings)
    least = prices.least(model)
    cost_usd = (prices.nano_usd(model, least) or 0) / 1e9
    needs = {"usd": cost_usd, "tokens": least.total_tokens, "requests": 1}
    for name, value in given.items():
        if value >= needs[name.rpartition("_")[2]]:
            continue
        where = f"{found}: " if (found := place(name)) else ""
        raise UsageError(
            f"{where}'{name}' is {value:g}, and not one call of '{model}' fits: an answer of "
            f"{least.completion_tokens:,} tokens is held back for each that does not say less"
            + (f", which costs ${cost_usd:.4f}" if cost_usd else "")
            + ". Give more, or a smaller model"
        )


def check_translators(spec: Spec, settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """UsageError when calls of an agent are to be translated and LiteLLM is not installed."""
    from proctor.agents.installed.litellm import LiteLLM, litellm_command
    from proctor.agents.registry import make_agent
    from proctor.gateway.apis import Api
    from proctor.gateway.providers import LITELLM, Providers
    from proctor.model.secret import without_values

    providers = Providers.load(settings, environ)
    if all(each.translate != LITELLM for each in providers) or litellm_command(settings.cache_dir):
        return
    for entry in spec.tasks:
        for name, model in product(entry.agents, filter(None, entry.models)):
            agent = make_agent(name, without_values(entry.agent_options), entry.agent_code.get(name))
            provider, _ = providers.of(model)
            apis = {Api(each) for each in getattr(agent, "apis", API_NAMES)}
            if apis and provider.translate == LITELLM and provider.translates_for(apis):
                raise UsageError(
                    f"calls of agent '{name}' to '{model}' are to be translated by LiteLLM "
                    f"{LiteLLM.version}, which is not installed on this machine: run 'proctor agents install "
                    "litellm'. Nothing was started"
                )


def fitting_judges(
    spec: Spec, settings: Settings, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The models of a spec's judges; UsageError for one that cannot be used, or not within its budget."""
    from proctor.gateway.apis import Api
    from proctor.gateway.providers import Providers, check_fit
    from proctor.trial.judge.ask import APIS

    found: dict[str, None] = {}
    for at, entry in enumerate(spec.tasks):
        if (judge := entry.judge) is None:
            continue
        place = spec.place("tasks", at)
        try:
            check_fit(
                {Api(each) for each in APIS},
                judge.model,
                Providers.load(settings, environ),
                agent="the judge",
                may_translate=False,
            )
            if judge.budget_usd is not None or settings.day_budget_usd is not None:
                _prices(settings).check(judge.model)
            own = {f"budget_{unit}": getattr(judge, f"budget_{unit}") for unit in _UNITS}
            _check_amounts(own, judge.model, settings, lambda _: "")
        except UsageError as error:
            raise UsageError(f"{place}: judge: {error}" if place else f"judge: {error}") from error
        found[judge.model] = None
    return tuple(found)


def speaks(agent: Agent, model: str | None, providers: Providers) -> str | None:
    """Why an agent cannot reach a model by the gateway; empty when it can, None when it wants no model."""
    from proctor.gateway.apis import Api
    from proctor.gateway.providers import check_fit

    apis: Sequence[str] = getattr(agent, "apis", API_NAMES)
    if not model or not apis:
        return None
    try:
        check_fit({Api(each) for each in apis}, model, providers, agent=f"agent '{agent.name}'")
    except UsageError as error:
        return str(error)
    return ""


def _says(agent: Agent) -> bool:
    """Whether an agent says which APIs it speaks, and not all of them."""
    return set(getattr(agent, "apis", API_NAMES)) != set(API_NAMES)


def _in_dollars(spec: Spec, settings: Settings) -> bool:
    return not spec.tape and any(
        each is not None for each in (spec.budget_usd, spec.attempt_budget_usd, settings.day_budget_usd)
    )


def _prices(settings: Settings) -> Prices:
    from proctor.gateway.prices import Prices

    return Prices.load(Path(settings.prices).expanduser() if settings.prices else None)


def model_gateway(run: ReadyRun, redactor: Redactor, on_spent: Callable[[str], None]) -> ModelGateway:
    """What gives the attempts of a run their models. Nothing is opened yet."""
    from proctor.gateway.providers import Providers
    from proctor.trial.task.models import ModelGateway

    spec, settings = run.spec, run.settings
    providers = Providers.load(settings, run.environ)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Gateway]:
        from proctor.agents.installed.litellm import litellm_command
        from proctor.gateway.app import Gateway

        with run.resources.stores.borrow() as store:
            async with Gateway(
                providers,
                _prices(settings),
                spending=store.spending,
                redact=redactor.whole if redactor else None,
                ca_bundle=settings.ca_bundle,
                litellm=litellm_command(settings.cache_dir),
            ) as gateway:
                yield gateway

    def heard(agent: Agent, model: str | None) -> str | None:
        found = speaks(agent, model, providers)
        return "" if found is not None and spec.tape else found

    return ModelGateway(
        open=opened,
        speaks=heard,
        budgets=lambda trial, lease: tuple(_budgets(spec, run.info.id, settings, trial, lease)),
        replay=Tapes(spec, run.resources).replay if spec.tape else None,
        on_spent=on_spent,
    )


def _budgets(
    spec: Spec, run_id: str, settings: Settings, trial: PlannedTrial, lease: Lease
) -> Iterator[Budget]:
    from proctor.store.portions import Scope
    from proctor.store.spending import DAY, Budget

    attempt = Scope("attempt", f"{run_id}/{trial.index}/{lease.attempt}")
    for scope, source, prefix in (
        (attempt, spec, "attempt_budget"),
        (Scope("run", run_id), spec, "budget"),
        (DAY, settings, "day_budget"),
    ):
        amounts: dict[str, Any] = {unit: getattr(source, f"{prefix}_{unit}") for unit in _UNITS}
        if any(each is not None for each in amounts.values()):
            yield Budget(scope=scope, **amounts)


# Tapes


def with_tape(spec: Spec, resources: Resources) -> Spec:
    """The spec, with its tape named so that it is found from anywhere: a blob, or the id of a run."""
    if spec.tape is None or spec.tape.startswith(_BLOB):
        return spec
    from proctor.gateway.tape import MEDIA_TYPE, NAME, Tape

    for file in (Path(spec.base_dir) / spec.tape, Path(spec.tape)):
        if file.is_file():
            Tape.read(file)
            kept = resources.blobs.put_bytes(file.read_bytes(), NAME, MEDIA_TYPE)
            return replace(spec, tape=_BLOB + kept.digest)
    with resources.stores.borrow() as store:
        try:
            return replace(spec, tape=store.run(spec.tape).id)
        except NotFoundError as error:
            raise UsageError(f"the tape '{spec.tape}' is neither a file nor a run: {error}") from error


class Tapes:
    """The tapes that the agents of a run are answered from, found by what a trial is."""

    def __init__(self, spec: Spec, resources: Resources) -> None:
        assert spec.tape
        self.source = spec.tape
        self.recorded_speed = spec.tape_speed == "recorded"
        self.blobs = resources.blobs
        self._digests: dict[str, dict[str, str]] = {}
        if not self.source.startswith(_BLOB):
            self._digests = resources.stores.now(recorded_tapes, self.source)

    def replay(self, trial: PlannedTrial, leg: int) -> Replay:
        """The tape of one step of a trial, from its beginning."""
        from proctor.gateway.replay import Replay
        from proctor.gateway.tape import Tape
        from proctor.trial.task.models import ReplayDiverged, tape_name

        digest = self.source.removeprefix(_BLOB)
        if digest == self.source:
            digest = self._digests.get(identity(trial), {}).get(tape_name(leg), "")
        if not digest or not self.blobs.has(digest):
            raise ReplayDiverged(f"run {self.source} has no tape of this trial")
        with self.blobs.open(digest) as file:
            return Replay(Tape.read(file), recorded_speed=self.recorded_speed)


def recorded_tapes(store: Store, run_id: str) -> dict[str, dict[str, str]]:
    """The tapes of a run: what a trial is → the tape's name → its digest."""
    return {
        identity(row.trial): {
            each.name: each.digest for each in row.record.artifacts if each.name.startswith("tape")
        }
        for row in store.attempts(run_id, counted_only=True)
    }


def counted_records(store: Store, run_id: str) -> dict[str, AttemptRecord]:
    """The results of a run, by what a trial is rather than by its key, which changes with the task."""
    return {identity(row.trial): row.record for row in store.attempts(run_id, counted_only=True)}


def identity(trial: PlannedTrial) -> str:
    """What a trial is, whatever its task has become: the same in two runs of one spec."""
    from proctor.model.canonical import canonical_json

    overrides = {name: value for name, value in trial.overrides.items() if name != "judge"}
    return canonical_json([trial.body, trial.subject, trial.agent, trial.model, overrides, trial.rollout])


# What there is


def known_providers(settings: Settings) -> list[dict[str, Any]]:
    """Every provider: its address, its APIs, where its key is and what is missing. Never the key."""
    from proctor.gateway.providers import Providers

    return [
        {
            "name": each.name,
            "base_url": each.base_url,
            "apis": sorted(each.apis),
            "key": each.key_env or ("PROCTOR_MODEL_API_KEY" if each.name == "local" else ""),
            "has_key": bool(each.key),
            "missing": each.lacks(),
            **({"translate": each.translate} if each.translate else {}),
        }
        for each in Providers.load(settings)
    ]


def known_models(store: Store, settings: Settings, project: str | None = None) -> list[dict[str, Any]]:
    """Models with a price, and those that runs have called, of a project or all; what is None is unknown."""
    prices = _prices(settings)
    called = store.spending.calls_by_model(project)
    found = []
    for name in sorted({*prices.names(), *called}):
        price = prices.of(name)
        found.append(
            {
                "name": name,
                "input": price and price.input,
                "output": price and price.output,
                "cached": price and (price.input if price.cached is None else price.cached),
                "cache_write": price and (price.input if price.cache_write is None else price.cache_write),
                "as_of": price.as_of if price else "",
                "requests": called.get(name, 0),
            }
        )
    return found
