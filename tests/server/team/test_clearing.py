"""Old files go; results, pinned runs and trials that somebody marked stay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.model.outcome import Outcome
from proctor.model.place import attempt_folder
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.server.team import clearing
from proctor.server.team.clearing import clear_old
from proctor.store.service.accounts import Project


@pytest.fixture
def ended(state, store, tmp_path, monkeypatch):
    """A run of two trials with a file each, that ended some days ago."""
    monkeypatch.setattr(clearing, "GRACE_S", 0.0)

    def make(run_id: str, days: float, *tags: str) -> list[str]:
        folder = tmp_path / "rollouts" / run_id
        trials, attempts, digests = [], [], []
        for index in range(2):
            trial = PlannedTrial(
                key=f"{run_id}-{index}", index=index, kind="task", subject="hello", subject_digest="d",
                body=0, agent="oracle", rollout=index, path="x",
            )  # fmt: skip
            blob = state.blobs.put_bytes(f"log of {run_id} {index}".encode(), "logs/agent.log")
            digests.append(blob.digest)
            place = folder / attempt_folder(trial, 1)
            place.mkdir(parents=True)
            (place / "agent.log").write_text("log")
            record = AttemptRecord(
                key=trial.key, number=1, outcome=Outcome.PASSED, started_at=1.0, ended_at=2.0, reward=1.0,
                artifacts=(blob,),
            )  # fmt: skip
            trials.append(trial)
            attempts.append((record, True))
        (folder / "manifest.json").write_text(f'{{"run": {{"id": "{run_id}"}}, "id": "{run_id}"}}')
        then = time.time() - days * 86400
        info = RunInfo(
            id=run_id, name="old", kind="task", status=RunStatus.DONE, created_at=then, started_at=then,
            finished_at=then, seed=1, total=2, folder=str(folder), tags=tags,
            plan_digest=Plan(trials=tuple(trials)).digest,
        )  # fmt: skip
        store.import_run(info, trials, attempts)
        return digests

    return make


def test_only_what_is_old_and_unmarked_is_cleared(state, store, ended):
    store.service.accounts.put_project(Project("default", "Default", keep_days=30))
    old, marked = ended("old", 31)
    young = ended("young", 29)
    pinned = ended("kept", 99, "pinned")
    store.service.remarks.set_labels("old", 1, ["good example"], "ada")
    assert clear_old(store, state) == ["old"]
    assert [state.blobs.has(each) for each in (old, marked, *young, *pinned)] == [False] + [True] * 5
    folder = Path(store.run("old").folder)
    left = sorted(path.parent.name for path in folder.rglob("agent.log"))
    assert len(left) == 1
    assert [row.record.reward for row in store.attempts("old")] == [1.0, 1.0], "the results stay"
    assert clear_old(store, state) == [], "once is enough"


def test_without_a_limit_nothing_is_cleared(state, store, ended):
    ended("ancient", 9999)
    assert clear_old(store, state) == []


def test_what_is_wanted_again_is_not_cleared(state, store, ended):
    store.service.accounts.put_project(Project("default", "Default", keep_days=1))
    ended("again", 31)
    store.service.queue.want("again", wanted=True)
    assert clear_old(store, state) == []
    assert replace(store.run("again")).total == 2
