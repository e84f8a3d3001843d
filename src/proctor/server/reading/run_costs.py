"""What a run spent on models: by model, agent and task, and what its agents waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proctor.server.reading.reading import Reading
from proctor.store.portions import Scope
from proctor.store.store import Store

_SUMS = ("requests", "unknown_cost", "unknown_usage", "unsettled", "prompt_tokens", "completion_tokens")
_MORE = ("cached_tokens", "cache_write_tokens", "reasoning_tokens", "nano_usd")


def run_costs(store: Store, reading: Reading, run_id: str) -> dict[str, Any]:
    """The books of the gateway; where it counted nothing, what the agents reported."""
    info = store.run(run_id)
    layout = reading.rows.summaries.layout(store, info)
    calls = store.spending.by(run_id, "idx", "model")
    place = [layout.places[at] for at in layout.place_of]
    total = store.spending.total(Scope("run", run_id))
    rows = reading.rows.of(store, store.views.runs.listed(limit=1, id=run_id))[0].data
    return {
        "run": run_id,
        "counted_by": "gateway" if calls else "agents",
        "total": {name: rows[name] for name in ("cost_usd", "unknown_cost", "tokens", "requests")},
        "held": {"tokens": total.held_tokens, "cost_usd": total.held_nano_usd / 1e9},
        "by_model": _grouped((str(each["model"]), each) for each in calls),
        "by_agent": _grouped((place[int(each["idx"])][1].label, each) for each in calls),
        "by_task": _grouped((place[int(each["idx"])][0].label, each) for each in calls),
        "provider_wait_s": _waited(store, run_id) if calls else 0.0,
    }


def _grouped(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, int]] = {}
    for name, each in calls:
        sums = found.setdefault(name, dict.fromkeys((*_SUMS, *_MORE), 0))
        for column in sums:
            sums[column] += int(each[column])
    written = [
        {
            "name": name,
            "cost_usd": sums.pop("nano_usd") / 1e9,
            "tokens": sums["prompt_tokens"] + sums["completion_tokens"],
            **sums,
        }
        for name, sums in found.items()
    ]
    return sorted(written, key=lambda each: (-float(each["cost_usd"]), str(each["name"])))


def _waited(store: Store, run_id: str) -> float:
    """Seconds that agents waited for providers, over all attempts."""
    waited = 0.0
    for row in store.attempts(run_id):
        seconds = row.record.phases_s.get("provider_wait")
        waited += seconds if isinstance(seconds, int | float) else 0.0
    return waited
