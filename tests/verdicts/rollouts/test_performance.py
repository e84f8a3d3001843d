from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from tests.made_rollouts import planned, record, run_of

from proctor.model.record import AttemptRecord
from proctor.render.document.markdown import markdown
from proctor.render.results.performance import of_attempt, section
from proctor.render.results.trial_files import evaluation, scoring
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.performance import overview, performance
from proctor.verdicts.run.summary import summary


def said(verdict: str, ratio: float | None = None, reward: float | None = None) -> dict[str, object]:
    found: dict[str, object] = {"verdict": verdict, "metric": "time", "direction": "lower", "target": 4.0}
    if ratio is None:
        return found
    numbers = {"rounds": 6, "ratio": ratio, "interval": [ratio * 0.95, ratio / 0.95], "level": 0.95}
    span = [reward or 0.0, 1.0]
    return {**found, **numbers, "reward": reward, "reward_interval": span, "reference": 2.0, "program": 1.0}


def program(trial, verdict: str, ratio: float | None = None, reward: float | None = None) -> AttemptRecord:
    ends = {"inconclusive": "starved"}
    outcome = ends.get(verdict) or ("passed" if reward == 1 else "partial" if reward else "failed")
    metrics = {"rewards": {}, "performance": said(verdict, ratio, reward)}
    return record(trial, outcome, None if outcome == "starved" else reward or 0.0, metrics=metrics)


def measured(**agents: list[tuple]) -> RunData:
    pairs = []
    for agent, ends in agents.items():
        for rollout, end in enumerate(ends):
            trial = planned(len(pairs), "speed", agent, rollout=rollout)
            pairs.append((trial, [program(trial, *end)]))
    return run_of(pairs)


FAST, SLOW = ("settled", 4.0, 1.0), ("settled", 1.0, 0.0)


def test_agents_are_ranked_by_reward_and_what_is_wrong_counts_as_nothing():
    lucky = [("settled", 16.0, 1.0), *[("failed",)] * 11]
    data = measured(lucky=lucky, good=[FAST] * 12, idle=[SLOW] * 12)
    found = performance(data)
    assert [each.arm.arm.label for each in found] == ["good", "lucky", "idle"]
    good, lucky_arm, idle = found
    assert (good.ranks, good.measured, good.rollouts) == ((1, 1), 12, 12)
    assert lucky_arm.gain.ratio == pytest.approx(16.0)
    assert lucky_arm.ranks == idle.ranks == (2, 3)
    assert good.gain.low < 4.0 < good.gain.high


def test_one_that_was_only_lost_to_the_host_has_the_last_place():
    found = performance(measured(open=[("inconclusive", 2.0)], good=[FAST]))
    assert [(each.arm.arm.label, each.ranks, each.inconclusive) for each in found] == [
        ("good", (1, 1), 0),
        ("open", (2, 2), 1),
    ]
    assert (found[1].reward, found[1].gain) == (None, None)


def test_a_run_without_measured_programs_says_nothing_of_it():
    trial = planned(0, "plain")
    data = run_of([(trial, [record(trial)])])
    assert (performance(data), overview(data), section(data).blocks) == ((), {}, ())
    assert of_attempt({}) == []
    assert "performance" not in summary(data)


def test_documents_have_it_and_keep_to_their_schemas():
    data = measured(good=[FAST, ("inconclusive", 2.0)], idle=[SLOW, ("not measured",)])
    document = summary(data)
    assert document["performance"]["inconclusive"] == 1
    assert document["arms"][0]["performance"]["measured"] == 1
    assert "1 measurement inconclusive" in str(section(data))
    schemas = files("proctor.runfolder") / "schemas"
    jsonschema.validate(document, json.loads((schemas / "summary.json").read_text()))
    for trial in reversed(data.trials):
        found = evaluation("run", trial.planned, trial.counted)
        jsonschema.validate(found, json.loads((schemas / "evaluation_results.json").read_text()))
    text = markdown(scoring(trial.planned, trial.counted, found))
    assert "4.000" in text
    assert "3.800–4.211" in text


def test_what_was_not_measured_says_why():
    (found,) = of_attempt({**said("failed"), "reason": "it ended with exit code 3"})
    assert "failed: it ended with exit code 3" in str(found)
