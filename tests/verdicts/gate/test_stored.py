from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from proctor.runfolder.read import RunData
from proctor.store.open import open_store
from proctor.verdicts.gate.inputs import input_of_run
from proctor.verdicts.gate.open import input_from_store
from proctor.verdicts.gate.rules import read_rules

RULES = read_rules(["duration_s not slower than 5%", "failure_count == 0"])


def put(store, data):
    attempts = [(record, record is trial.counted) for trial in data.trials for record in trial.attempts]
    store.import_run(data.info, [trial.planned for trial in data.trials], attempts)


@pytest.fixture
def store(tmp_path):
    with open_store(str(tmp_path / "store.db")) as opened:
        yield opened


def test_a_streamed_side_says_what_a_side_in_memory_says(any_run, store):
    put(store, any_run)
    held = input_of_run(RunData.from_store(store, any_run.info.id), RULES.metrics)
    found = input_from_store(store, any_run.info.id, RULES)
    assert found is not None
    assert found.results == held.results
    assert (found.reasons, found.trials, found.missing, found.broken) == (
        held.reasons, held.trials, held.missing, held.broken,
    )  # fmt: skip
    assert len(found.fields) >= 14
    assert dict(found.fields) == {name: held.fields[name] for name in found.fields}
    assert found.digest == held.digest


def test_the_digest_is_the_same_for_names_with_escapes_and_numbers_that_are_none(runs, store):
    data = runs.single(8)
    trial = data.trials[0]
    odd = structs.replace(trial.counted, metrics={'a"b\\é': {"p50": float("nan")}, "x": float("inf")})
    data = replace(data, trials=(structs.replace(trial, attempts=(odd,), counted=odd),))
    put(store, data)
    found = input_from_store(store, data.info.id, RULES)
    assert found is not None
    assert found.digest == input_of_run(RunData.from_store(store, data.info.id), RULES.metrics).digest


@pytest.mark.parametrize("rule", ["metrics.duration_s.p95 <= 1", "cost_usd <= 1", "trials.total == 3"])
def test_a_rule_that_looks_deeper_gets_the_run_in_memory(runs, store, rule):
    data = runs.single(8)
    put(store, data)
    assert input_from_store(store, data.info.id, read_rules([rule])) is None
