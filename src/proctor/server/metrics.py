"""Metrics in Prometheus' text format: of the store, of the engine and of the requests to this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proctor.model.outcome import Outcome
from proctor.store.service.demand import Demand
from proctor.store.service.figures import Figures

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OF_CLASS = {
    "waiting": "Trials that could run now",
    "delayed": "Trials that wait for their next try or for their project's quota",
    "running": "Trials under way",
    "oldest_s": "How long the first that could run has waited",
}
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Requests:
    """How many requests this process has answered, and how long they took. A restart begins anew."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}
        self.buckets = [0] * (len(_BUCKETS_S) + 1)
        self.total_s = 0.0

    def observe(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one."""
        key = (method, route, status)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.total_s += took_s
        at = next((at for at, limit in enumerate(_BUCKETS_S) if took_s <= limit), len(_BUCKETS_S))
        self.buckets[at] += 1


def written(figures: Figures, requests: Requests | None, engine: Mapping[str, float]) -> str:
    """All metrics as text; those of requests only for callers of all projects."""
    lines = list(_of_store(figures))
    for name, value in engine.items():
        lines += _metric(f"proctor_engine_{name}", "gauge", f"The engine: {name.replace('_', ' ')}.", value)
    if requests is not None:
        lines += _of_requests(requests)
    return "\n".join(lines) + "\n"


def _of_store(found: Figures) -> Iterator[str]:
    yield from _metric("proctor_queue_depth", "gauge", "Runs that wait to begin.", found.queued_runs)
    yield from _metric(
        "proctor_queue_age_seconds", "gauge", "How long the first of them has waited.", found.queue_age_s
    )
    yield from _metric("proctor_trials_running", "gauge", "Trials under way.", found.running_trials)
    yield from _metric("proctor_trials_waiting", "gauge", "Trials of open runs to do.", found.waiting_trials)
    yield from _metric("proctor_workers", "gauge", "Workers that live, or hold trials.", found.workers)
    meaning = "Trials that live workers execute at a time."
    yield from _metric("proctor_worker_slots", "gauge", meaning, found.slots)
    yield from _of_demand(found.demand)
    yield from _labelled("proctor_runs", "gauge", "Runs by status.", "status", found.runs)
    # All from the beginning: of a series that is new Prometheus does not know that it increased.
    every = dict.fromkeys(map(str, Outcome), 0)
    for name, meaning, counted in (
        ("proctor_outcomes_total", "Results by outcome.", found.outcomes),
        ("proctor_attempts_total", "Attempts by outcome, also those that were tried again.", found.attempts),
    ):
        yield from _labelled(name, "counter", meaning, "outcome", every | counted)
    yield "# HELP proctor_attempt_seconds How long attempts took, all phases."
    yield "# TYPE proctor_attempt_seconds summary"
    yield f"proctor_attempt_seconds_sum {found.attempt_s:g}"
    yield f"proctor_attempt_seconds_count {sum(found.attempts.values())}"
    yield from _metric("proctor_model_requests_total", "counter", "Calls of models.", found.requests)
    yield from _metric("proctor_model_tokens_total", "counter", "Tokens of models.", found.tokens)
    yield from _metric("proctor_model_cost_usd_total", "counter", "Known cost of models.", found.cost_usd)


def _of_demand(demand: Demand) -> Iterator[str]:
    """What an autoscaler reads: the first two are there also when nothing waits."""
    meaning = "Trials that run, and that could run if there were workers enough."
    yield from _metric("proctor_demand_trials", "gauge", meaning, demand.trials)
    meaning = "How long the first trial that could run has waited."
    yield from _metric("proctor_demand_oldest_seconds", "gauge", meaning, demand.oldest_s)
    for field, meaning in _OF_CLASS.items():
        name = f"proctor_class_{field.removesuffix('_s')}{'_seconds' if field.endswith('_s') else ''}"
        yield f"# HELP {name} {meaning}, by kind of run, back end and labels."
        yield f"# TYPE {name} gauge"
        for each in demand.needs:
            labels = f'kind="{_escaped(each.kind)}",backend="{_escaped(each.backend)}"'
            labels += f',labels="{_escaped(each.labels)}"'
            yield f"{name}{{{labels}}} {getattr(each, field):g}"


def _of_requests(requests: Requests) -> Iterator[str]:
    yield "# HELP proctor_http_requests_total Requests by method, route and status."
    yield "# TYPE proctor_http_requests_total counter"
    for (method, route, status), number in sorted(requests.counts.items()):
        labels = f'method="{method}",route="{_escaped(route)}",status="{status}"'
        yield f"proctor_http_requests_total{{{labels}}} {number}"
    yield "# HELP proctor_http_request_seconds How long requests took."
    yield "# TYPE proctor_http_request_seconds histogram"
    total = 0
    for limit, number in zip((*_BUCKETS_S, "+Inf"), requests.buckets, strict=True):
        total += number
        yield f'proctor_http_request_seconds_bucket{{le="{limit}"}} {total}'
    yield f"proctor_http_request_seconds_sum {requests.total_s:g}"
    yield f"proctor_http_request_seconds_count {total}"


def _metric(name: str, kind: str, meaning: str, value: float) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _labelled(name: str, kind: str, meaning: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for key, value in sorted(values.items()):
        yield f'{name}{{{label}="{_escaped(key)}"}} {value}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
