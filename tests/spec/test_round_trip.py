"""`Spec.to_mapping` and `from_mapping` are inverses, and what they exchange is JSON that fits the schema."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.model.spec import (
    ExperimentBody,
    InstrumentSpec,
    Iterations,
    Retries,
    SandboxSpec,
    Spec,
    TaskEntry,
)
from proctor.spec.load import from_mapping

SCHEMA = json.loads((files("proctor.spec") / "schema.json").read_text())
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
    str.strip
)
NAME = st.from_regex(r"[a-z][\w.+@=, -]{0,20}", fullmatch=True)
HOST = st.from_regex(r"[a-z][a-z0-9]{0,8}(\.[a-z]{1,8}){0,2}", fullmatch=True)
COUNT = st.integers(1, 10**6)
AMOUNT = st.floats(0.001, 1e9)
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(-1e300, 1e300) | st.text(max_size=5)
)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
OPTIONS = st.dictionaries(st.sampled_from(["name", "options", "interval_ms", "psutil"]), JSON, max_size=3)
ITERATIONS = st.builds(
    Iterations,
    warmup=st.integers(0, 99) | st.just("auto"),
    measured=COUNT | st.just("auto"),
    max_time_s=AMOUNT,
    target_width=AMOUNT,
    min_measured=st.integers(1, 9),
    max_measured=st.integers(9, 99),
)
INSTRUMENTS = st.lists(
    st.builds(InstrumentSpec, name=WORD, options=OPTIONS), max_size=3, unique_by=lambda each: each.name
).map(tuple)
# `params: {…}` inside a sweep is an older shape; a list cannot be mistaken for it.
SWEEP = st.dictionaries(WORD, st.lists(JSON, min_size=1, max_size=3).map(tuple), max_size=2)


@st.composite
def bodies(draw: st.DrawFn) -> ExperimentBody:
    is_random = draw(st.booleans())
    return ExperimentBody(
        experiment=draw(WORD),
        params=draw(st.dictionaries(st.text(max_size=5), JSON, max_size=3)),
        sweep=draw(SWEEP),
        strategy="random" if is_random else "cartesian",
        samples=draw(COUNT) if is_random else None,
        iterations=draw(ITERATIONS),
        instrumentation=draw(INSTRUMENTS),
        isolation=draw(st.sampled_from(["process", "none"])),
        loops=draw(COUNT | st.just("auto")),
        gc=draw(st.sampled_from(["disabled", "enabled"])),
        python=draw(st.none() | WORD),
    )


VARIABLE = st.from_regex(r"[A-Z_]{1,5}", fullmatch=True)
VALUE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
ENTRIES = st.builds(
    TaskEntry,
    path=WORD,
    source=st.sampled_from(["path", "prepared_dir", "dataset", "zip"]),
    include=st.lists(WORD, max_size=2).map(tuple),
    exclude=st.lists(WORD, max_size=2).map(tuple),
    agents=st.lists(WORD, min_size=1, max_size=3, unique=True).map(tuple),
    agent_options=st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    models=st.lists(WORD | st.none(), min_size=1, max_size=3, unique=True).map(tuple),
    rollouts=COUNT,
    apply_overrides=st.booleans(),
    overrides=st.none() | WORD | st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    environment_variables=st.dictionaries(VARIABLE, VALUE, max_size=2),
    sweep=st.dictionaries(VARIABLE, st.lists(VALUE, min_size=1, max_size=2).map(tuple), max_size=2),
)
SHARED: dict[str, Any] = {
    "name": NAME,
    "seed": st.integers(0, 2**63 - 1),
    "tags": st.lists(st.text(max_size=5), max_size=2).map(tuple),
    "notes": st.text(max_size=9),
    "parallel": st.integers(1, 10_000),
    "output_dir": st.none() | WORD,
    "timeout_s": st.none() | AMOUNT,
    "retries": st.builds(
        Retries,
        infrastructure=st.integers(0, 9),
        provider=st.integers(0, 9),
        backoff_s=AMOUNT,
        max_backoff_s=AMOUNT,
    ),
    "budget_usd": st.none() | AMOUNT,
    "budget_tokens": st.none() | COUNT,
    "budget_requests": st.none() | COUNT,
    "attempt_budget_usd": st.none() | AMOUNT,
    "attempt_budget_tokens": st.none() | COUNT,
    "attempt_budget_requests": st.none() | COUNT,
    "tape": st.none() | WORD,
    "tape_speed": st.sampled_from(["full", "recorded"]),
    "engine": st.sampled_from(["auto", "local", "celery"]),
    "sandbox": st.builds(
        SandboxSpec,
        backend=WORD,
        network=st.sampled_from(["allowlist", None]),
        allowed_hosts=st.lists(HOST, max_size=2).map(tuple),
        network_allow=st.lists(HOST, max_size=2).map(tuple),
        cpus=st.none() | AMOUNT,
        memory_bytes=st.none() | COUNT,
        storage_bytes=st.none() | COUNT,
        pids=st.none() | COUNT,
    ),
    "gates": st.lists(JSON, max_size=2).map(tuple),
    "sources": st.lists(WORD, max_size=2).map(tuple),
    "base_dir": WORD,
}
SPECS = st.builds(
    Spec, experiments=st.lists(bodies(), min_size=1, max_size=2).map(tuple), **SHARED
) | st.builds(Spec, tasks=st.lists(ENTRIES, min_size=1, max_size=2).map(tuple), **SHARED)


@settings(max_examples=60)
@given(SPECS)
def test_a_spec_survives_the_way_through_json_unchanged(spec: Spec) -> None:
    stored = json.dumps(spec.to_mapping(), allow_nan=False)
    again = from_mapping(json.loads(stored))
    assert again == spec
    assert json.dumps(again.to_mapping()) == stored


@settings(max_examples=25)
@given(SPECS)
def test_every_resolved_spec_fits_the_published_schema(spec: Spec) -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(spec.to_mapping())
