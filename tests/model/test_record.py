from __future__ import annotations

import json

from msgspec import convert

from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import Event
from proctor.model.subject import ParamInfo


def make_record(**changes) -> AttemptRecord:
    values = {
        "key": "k",
        "number": 2,
        "outcome": Outcome.AGENT_TIMEOUT,
        "started_at": 1.0,
        "ended_at": 2.5,
        "reward": 0.5,
        "failure": Failure(phase="agent", type="TimeoutError", message="late", traceback="…"),
        "iterations": ({"duration_s": 1.0},),
        "artifacts": (Artifact(name="a", digest="d", size_bytes=3),),
        "notes": ("n",),
    }
    return AttemptRecord(**(values | changes))


def test_a_record_survives_the_way_to_plain_data_and_back():
    for record in (make_record(), make_record(failure=None, artifacts=())):
        plain = record.to_mapping()
        assert plain["blame"] == "agent"
        assert convert(json.loads(json.dumps(plain)), AttemptRecord) == record


def test_fields_of_a_later_schema_are_ignored():
    assert convert({**make_record().to_mapping(), "later": 1}, AttemptRecord) == make_record()


def trial(**changes) -> PlannedTrial:
    values = {"key": "k", "index": 0, "kind": "task", "subject": "t", "subject_digest": "d", "body": 0}
    return PlannedTrial(**(values | changes))


def test_labels_say_what_sets_a_trial_apart():
    assert trial(kind="experiment", subject="sort", params={"n": 3}).label == "sort(n=3)"
    assert trial(kind="experiment", subject="sort").label == "sort"
    assert trial(agent="oracle", model="m", rollout=1).label == "t × oracle/m #2"
    disturbed = {"environment_variables": {"PROCTOR_PERTURBATION": "clock", "TOKEN": "secret"}}
    assert trial(agent="oracle", overrides=disturbed).label == "t × oracle, clock #1"


def test_a_plan_changes_its_digest_with_its_trials():
    one, two = Plan(trials=(trial(key="a"),)), Plan(trials=(trial(key="b"),))
    assert one.digest != two.digest
    assert len(one) == 1


def test_every_part_of_a_trial_moves_its_key():
    base = {"subject_digest": "d", "agent": "a", "model": "m", "params": {"n": 1}, "seed": 1, "rollout": 0}
    keys = {
        trial_key(**base),
        trial_key(**base | {"subject_digest": "e"}),
        trial_key(**base | {"agent": "b"}),
        trial_key(**base, agent_version="2"),
        trial_key(**base | {"model": None}),
        trial_key(**base | {"params": {"n": 2}}),
        trial_key(**base, overrides={"x": 1}),
        trial_key(**base | {"seed": 2}),
        trial_key(**base | {"rollout": 1}),
    }
    assert len(keys) == 9


def test_a_parameter_without_a_default_is_required():
    assert ParamInfo(name="n").required
    assert not ParamInfo(name="n", default=None).required


def test_an_event_is_plain_data():
    assert Event(id=1, run_id="r", at=1.0, kind="run.started").data == {}
