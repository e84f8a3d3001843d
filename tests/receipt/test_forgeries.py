"""Values changed and sealed again: each forgery is told as what it is."""

from __future__ import annotations

import json
import re

import pytest

from proctor.receipt import recount

CHANGES = {
    "a reward": (
        "task",
        lambda rows: rows[2].update(reward=1.0),
        r"trial \w+… \(org/plain × oracle #3\) reward: recorded 1.0, the verifier's own reward.txt says 0.0",
    ),
    "an outcome with its reward": (
        "task",
        lambda rows: rows[2].update(reward=1.0, outcome="passed", blame="agent"),
        r"outcome: recorded 'passed', the verifier's own reward.txt says 0, so 'failed'",
    ),
    "a time-out's reward": (
        "task",
        lambda rows: rows[3].update(reward=0.5),
        "reward: recorded 0.5, the verifier's own reward.json says 1.0",
    ),
    "a silent verifier's pass": (
        "task",
        lambda rows: rows[4].update(reward=1.0, outcome="passed", blame="agent", failure=None),
        "outcome: recorded 'passed', .* 'verifier_error'",
    ),
    "a reward without a score": (
        "task",
        lambda rows: rows[4].update(reward=1.0),
        "'verifier_error' is not scored, so it has null",
    ),
    "a step": (
        "task",
        lambda rows: rows[5]["metrics"]["steps"].update(two=1.0),
        "metrics.steps.two: recorded 1.0, the verifier's own two/reward.txt says 0.0",
    ),
    "the sum of steps": (
        "task",
        lambda rows: rows[5].update(reward=0.8),
        "reward: recorded 0.8, its steps have a mean of 0.5",
    ),
    "a rubric": (
        "task",
        lambda rows: rows[6]["metrics"]["rubrics"][1].update(unit_score=1.0),
        "the rubrics' weighted mean is 1.0",
    ),
    "a cost": (
        "task",
        lambda rows: rows[0]["usage"].update(cost_usd=0.01),
        "usage.cost_usd: recorded 0.01, the trajectory's steps give 0.25",
    ),
    "a blame": (
        "task",
        lambda rows: rows[4].update(blame="agent"),
        "blame: recorded 'agent', the rest of line 5 gives 'task'",
    ),
    "an artifact's digest": (
        "task",
        lambda rows: rows[0]["artifacts"][0].update(digest="0" * 64),
        "artifacts.verifier/reward.txt.digest: recorded '0000",
    ),
    "an iteration": (
        "experiment",
        lambda rows: rows[0]["iterations"][3].update(duration_s=0.9),
        "metrics.duration_s.max: recorded .* the iterations give 0.9",
    ),
    "an aggregate": (
        "experiment",
        lambda rows: rows[0]["metrics"]["duration_s"].update(p50=1e-9),
        "metrics.duration_s.p50: recorded 1e-09, the iterations give",
    ),
    "an aggregate of nothing": (
        "experiment",
        lambda rows: rows[0]["metrics"].update(speed={"mean": 3}),
        "metrics.speed: recorded .* no iteration has it",
    ),
    "an aggregate that is gone": (
        "experiment",
        lambda rows: rows[0]["metrics"].pop("deep.swaps"),
        "metrics.deep.swaps: recorded null, the iterations give a mean of",
    ),
    "an error that passed": (
        "experiment",
        lambda rows: rows[0]["iterations"][0].update(error="boom"),
        "an iteration has an error, which makes it 'failed'",
    ),
    "a pass with a failure": (
        "experiment",
        lambda rows: rows[0].update(failure={"phase": "p", "type": "T", "message": "m", "traceback": ""}),
        "failure: recorded 'T: m', one that passed has null",
    ),
    "a set-aside failure": (
        "experiment",
        lambda rows: rows[1].update(outcome="failed", blame="agent"),
        "ended 'failed', which counts, but is marked as not counted",
    ),
    "two that count": (
        "experiment",
        lambda rows: rows[1].update(counts=True),
        "attempt 2, follows an attempt that counts",
    ),
    "a missing attempt": ("experiment", lambda rows: rows.pop(1), "is numbered 2: attempts count up from 1"),
    "a missing trial": (
        "experiment",
        lambda rows: rows.pop(),
        r"sort_list\(size=100\)\) has no attempt that counts, but the run is marked as done",
    ),
    "an attempt of no trial": (
        "experiment",
        lambda rows: rows[0].update(key="f" * 64),
        "belongs to a trial that the plan does not have",
    ),
    "other parameters": (
        "experiment",
        lambda rows: rows[0].update(params={"size": 3}),
        "params: not as planned for this key",
    ),
    "another order": ("experiment", lambda rows: rows.reverse(), "its row is out of order"),
    "an end before the start": (
        "experiment",
        lambda rows: rows[0].update(ended_at=rows[0]["started_at"] - 1),
        "ended 1 s before it started",
    ),
    "a short time": (
        "experiment",
        lambda rows: rows[0]["phases_s"].update(work=100.0),
        "took 2.5 s from start to end, but its phases took 100 s",
    ),
    "a start before the run": (
        "experiment",
        lambda rows: rows[0].update(started_at=1.0),
        "started before its run did",
    ),
    "an end after the run": (
        "experiment",
        lambda rows: rows[0].update(ended_at=2e9),
        "ended after its run had",
    ),
    "attempts at once": (
        "experiment",
        lambda rows: rows[2].update(started_at=rows[1]["ended_at"] - 100),
        "started before the attempt before it had ended",
    ),
    "numbers that break arithmetic": (
        "experiment",
        lambda rows: rows[0]["iterations"][0].update(duration_s=1e300),
        "its numbers cannot be calculated again: OverflowError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CHANGES))
def test_what_was_changed_in_the_rows_is_told(workshop, tools, tmp_path, name):
    kind, change, expected = CHANGES[name]
    told = tools.told(tools.forge_rows(workshop.receipt(kind), change, tmp_path / "forged.zip"))
    assert any(re.search(expected, line) for line in told), "\n".join(told)


def _json_change(path, change):
    def changed(files):
        name = next(each for each in files if re.fullmatch(path, each))
        found = json.loads(files[name])
        change(found)
        files[name] = json.dumps(found).encode()

    return changed


DOCUMENTS = {
    "summary": (
        "task",
        _json_change(
            "summary.json", lambda each: each["arms"][0]["pass_rate"]["errors_excluded"].update(value=1)
        ),
        r"summary.json: arms\[0\].pass_rate.errors_excluded.value: recorded 1, the attempts give 0\.",
    ),
    "at k": (
        "task",
        _json_change("summary.json", lambda each: each["arms"][0]["pass_at_k"][0].update(value=0.99)),
        r"arms\[0\].pass_at_k\[0\].value: recorded 0.99",
    ),
    "result": (
        "experiment",
        _json_change(
            "trials/sort_list/2/result.json", lambda each: each["metrics"]["duration_s"].update(p95=1)
        ),
        r"trials/sort_list/2/result.json: trial \w{12}… \(sort_list\(size=100\)\) metrics.duration_s.p95",
    ),
    "metrics": (
        "experiment",
        _json_change("metrics.json", lambda each: each["trials"][1].update(outcome="failed")),
        r"metrics.json: trial \w{12}… \(sort_list\(size=10\)\) trials\[1\].outcome: recorded 'failed'",
    ),
    "rollouts": (
        "task",
        _json_change("manifest.json", lambda each: each["results"][0].update(reward=0)),
        r"manifest.json: trial \w{12}… \(org/plain × oracle #1\) results\[0\].reward: recorded 0, .* 1.0",
    ),
    "task results": (
        "task",
        _json_change(
            "task_results/org__plain.json", lambda each: each["arms"][0]["results"][0].update(reward=0)
        ),
        r"task_results/org__plain.json: trial \w{12}… .*results\[0\].reward",
    ),
    "evaluation": (
        "task",
        _json_change("trials/org__plain/0/evaluation_results.json", lambda each: each.update(reward=0.1)),
        "evaluation_results.json: trial .* reward: recorded 0.1, the attempts give 1.0",
    ),
    "plan": (
        "experiment",
        _json_change("manifest.json", lambda each: each["plan"]["trials"][0].update(seed=8)),
        "manifest.json: trial .* key: recorded .* the plan gives",
    ),
    "planned twice": (
        "experiment",
        _json_change("manifest.json", lambda each: each["plan"]["trials"].append(each["plan"]["trials"][0])),
        "is planned twice",
    ),
    "status": (
        "experiment",
        _json_change("summary.json", lambda each: each["run"].update(done=1, counts={"passed": 1})),
        "summary.json: run.counts: recorded {'passed': 1}, the attempts that count give {'passed': 3}",
    ),
    "spec": (
        "experiment",
        _json_change("manifest.json", lambda each: each["resolved"].update(seed=9)),
        "receipt.json: spec_digest",
    ),
    "a page": (
        "experiment",
        lambda files: files.update({"report.md": files["report.md"].replace(b"ms", b"ns", 1)}),
        "report.md: line .*ns.* the attempts give .*ms",
    ),
    "another layout": (
        "experiment",
        lambda files: files.update(
            {"metrics.json": files["metrics.json"].replace(b'"run_id"', b'"run_id": 5, "run_id"', 1)}
        ),
        "metrics.json: run_id: appears twice",
    ),
    "no JSON": (
        "experiment",
        lambda files: files.update({"metrics.json": b"{"}),
        "metrics.json: not valid JSON",
    ),
    "no rows": ("experiment", lambda files: files.pop("series.jsonl"), "series.jsonl: is missing"),
    "bad rows": (
        "experiment",
        lambda files: files.update({"series.jsonl": b"{}\n"}),
        "series.jsonl: 1: 'counts' is missing",
    ),
    "a torn row": (
        "experiment",
        lambda files: files.update({"series.jsonl": files["series.jsonl"][:-1]}),
        "is not written the way Proctor writes it",
    ),
    "a missing file": (
        "experiment",
        lambda files: files.pop("report.html"),
        "report.html: a run has this file",
    ),
    "a missing artifact": (
        "task",
        lambda files: files.pop("trials/org__plain/0/verifier/reward.txt"),
        "the record has this artifact, but the receipt does not",
    ),
    "a swapped reward file": (
        "task",
        lambda files: files.update({"trials/org__plain/0/verifier/reward.txt": b"0\n"}),
        "reward: recorded 1.0, the verifier's own reward.txt says 0.0",
    ),
    "an invalid reward file": (
        "task",
        lambda files: files.update({"trials/org__plain/0/verifier/reward.txt": b"many\n"}),
        "outcome: recorded 'passed', reward.txt says 'many'.*'reward_invalid'",
    ),
    "one file too many": (
        "experiment",
        lambda files: files.update({"trials/extra.txt": b"hello"}),
        "trials/extra.txt: belongs to no trial",
    ),
}


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_what_was_changed_in_the_documents_is_told(workshop, tools, tmp_path, name):
    kind, change, expected = DOCUMENTS[name]
    told = tools.told(tools.forge(workshop.receipt(kind), change, tmp_path / "forged.zip"))
    assert any(re.search(expected, line) for line in told), "\n".join(told)


def test_another_version_compares_numbers_and_no_pages(workshop, tools, tmp_path, monkeypatch):
    honest = workshop.receipt("experiment")

    def pages(files):
        files["report.html"] = b"<p>laid out by another version</p>"
        files["metrics.json"] = files["metrics.json"].replace(b'"trials"', b'"new_field": 3,\n "trials"', 1)

    forged = tools.forge(honest, pages, tmp_path / "other.zip")
    assert not tools.verify(forged).ok
    monkeypatch.setattr(recount, "installed_version", lambda: "99.0")
    verified = tools.verify(forged)
    assert tools.told(forged) == []
    assert any("HTML and Markdown pages are not" in note for note in verified.findings.notes)
    wrong = tools.forge(honest, DOCUMENTS["metrics"][1], tmp_path / "wrong.zip")
    assert any("outcome" in line for line in tools.told(wrong))


# Packing
