"""What a run was made to decide, as a document for the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.made_rollouts import Study
from tests.resources import Resources
from tests.server.reading.conftest import FIRST
from tests.verdicts.race.test_judge import race

from proctor.model.run import Execution, RunInfo
from proctor.model.trial import RunStatus
from proctor.server.problem import Problem
from proctor.server.reading.run_rows import RunRows
from proctor.server.routes.reading.judged import _verdict
from proctor.settings import load_settings
from proctor.store.open import open_store

RUN, BEFORE = "20260105T000000-eeeeee", "20260104T000000-ffffff"


def verdict(home: Path, gates: list[Any], execution: Execution = Execution.TASK, project: str | None = None):
    settings = load_settings({"PROCTOR_HOME": str(home)})
    study = Study().cell("org/a", [1.0, 1.0, 0.0], "oracle").cell("org/b", [1.0, 0.0, 0.0], "oracle").data()
    with open_store(settings.store_url) as store:
        for run in (BEFORE, RUN):
            folder = home / run
            folder.mkdir(parents=True)
            info = RunInfo(
                id=run, name="study", kind="task", status=RunStatus.DONE, created_at=1.0, started_at=1.0,
                finished_at=2.0, seed=1, total=6, resolved={"gates": gates}, folder=str(folder),
                execution=execution,
            )  # fmt: skip
            tries = [(each, True) for trial in study.trials for each in trial.attempts]
            store.import_run(info, [trial.planned for trial in study.trials], tries)
        if execution is Execution.PERF and gates:
            (home / RUN / "perf.json").write_text(
                json.dumps({"kind": "perf", "folder": "/x", "sections": []})
            )
        return _verdict(store, None, run=RUN, project=project, resources=Resources(settings))


def test_a_gate_is_shown_rule_by_rule(tmp_path):
    found = verdict(tmp_path, ["failure_count == 0", "score >= 0.1"])
    assert (found["kind"], found["verdict"]) == ("gate", "regression")
    assert found["sections"][0]["name"] == "rules"
    assert "folder" not in found


AGAINST = [{"baseline": BEFORE}, "score not worse than baseline by more than 3pp at 95%"]


def test_a_gate_with_a_baseline_says_what_would_change_it(tmp_path):
    found = verdict(tmp_path, AGAINST)
    assert found["verdict"] in {"pass", "inconclusive"}
    assert [each for each in found["sections"] if "what would change" in each.get("title", "")]


def test_a_baseline_of_another_project_is_not_told(tmp_path):
    with pytest.raises(Problem, match="is no run of the project 'others'"):
        verdict(tmp_path, AGAINST, project="others")


def test_a_baseline_is_never_a_file(tmp_path, monkeypatch):
    """A run may have been given the name of one, or of a folder of results, before names were checked."""
    monkeypatch.chdir(tmp_path)
    summary = tmp_path / "summary.json"
    summary.write_text('{"schema_version": 1, "score": 1.0}')
    for at, named in enumerate((str(summary), "summary.json", "/etc/passwd")):
        with pytest.raises(Problem, match="is no run of the project 'default'"):
            verdict(tmp_path / str(at), [{"baseline": named}, AGAINST[1]])


def test_a_baseline_that_is_gone_is_told(tmp_path):
    with pytest.raises(Problem, match="cannot be judged"):
        verdict(tmp_path, [{"baseline": "nothing"}, AGAINST[1]])


def test_a_race_and_a_vetting_have_documents_of_their_own(tmp_path):
    settings = load_settings({"PROCTOR_HOME": str(tmp_path)})
    made = race([(1.0, 0.0)] * 8)
    with open_store(settings.store_url) as store:
        tries = [(each, True) for trial in made.trials for each in trial.attempts]
        store.import_run(made.info, [trial.planned for trial in made.trials], tries)
        found = _verdict(store, None, run=made.info.id, project=None, resources=Resources(settings))
        (row,) = RunRows().of(store, store.views.runs.listed(limit=1))
    assert (found["kind"], found["verdict"]) == ("race", "regression")
    assert row.data["gate"] == {"verdict": "regression", "sentence": found["headline"]}
    assert verdict(tmp_path / "other", [], Execution.VET)["kind"] == "vet"


def test_a_run_without_gates_has_no_verdict(tmp_path):
    with pytest.raises(Problem, match="has no gates"):
        verdict(tmp_path, [])


def test_a_perf_run_shows_the_document_that_it_left(tmp_path):
    assert verdict(tmp_path, ["kept"], Execution.PERF) == {"kind": "perf", "sections": []}


def test_a_perf_run_that_was_stopped_says_so(tmp_path):
    with pytest.raises(Problem, match=r"left no perf\.json"):
        verdict(tmp_path, [], Execution.PERF)


def test_the_route_answers_404_where_nothing_was_decided(reading):
    assert reading.ours.get(f"/api/runs/{FIRST}/verdict").status_code == 404
