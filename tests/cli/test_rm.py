from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
from tests.taking import take

from proctor.cli import rm
from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.garbage import collect_garbage
from proctor.store.open import open_store
from proctor.store.store import Store


@pytest.fixture
def store():
    with open_store(load_settings().store_url) as opened:
        yield opened


@pytest.fixture
def blobs() -> Blobs:
    return open_blobs(load_settings().blobs_url)


def put_before(blobs: Blobs, digest: str, age_s: float) -> None:
    """As if the blob had been put so long ago."""
    then = time.time() - age_s
    os.utime(blobs.path(digest), (then, then))


def add_run(
    store: Store,
    blobs: Blobs,
    run_id: str,
    *contents: bytes,
    folder: Path | None = None,
    age_days: float = 0.0,
):
    trial = PlannedTrial(key="k", index=0, kind="experiment", subject="s", subject_digest="d", body=0)
    info = RunInfo(
        id=run_id,
        name="bench",
        kind="experiment",
        status=RunStatus.DONE,
        created_at=time.time() - age_days * 86400,
        seed=1,
        folder=str(folder or ""),
    )
    store.create_run(info, Plan(trials=(trial,)))
    (lease,) = take(store, run_id, worker="w", lease_s=30)
    artifacts = tuple(blobs.put_bytes(content, "a") for content in contents)
    for artifact in artifacts:
        put_before(blobs, artifact.digest, 3600.0)
    record = AttemptRecord(
        key="k", number=1, outcome=Outcome.PASSED, started_at=1.0, ended_at=2.0, artifacts=artifacts
    )
    store.finish(lease, record, counts=True)
    if folder:
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"run": {"id": run_id}}))
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
    return [artifact.digest for artifact in artifacts]


def test_a_run_goes_with_its_own_blobs_and_folder(store: Store, blobs: Blobs, tmp_path: Path, capsys):
    own, shared = add_run(store, blobs, "run-1", b"own", b"shared", folder=tmp_path / "run-1")
    add_run(store, blobs, "run-2", b"shared", folder=tmp_path / "run-2")
    assert main(["rm", "run-1", "--yes"]) == 0
    out = capsys.readouterr().out
    assert out == f"removed run-1 (bench): 1 trials, 1 artifacts, folder {tmp_path / 'run-1'}\n"
    assert [run.id for run in store.runs()] == ["run-2"]
    assert (blobs.has(own), blobs.has(shared)) == (False, True)
    assert not (tmp_path / "run-1").exists()
    assert (tmp_path / "run-2" / "deep" / "file").exists()


def test_the_folder_can_be_kept(store: Store, blobs: Blobs, tmp_path: Path):
    add_run(store, blobs, "run-1", folder=tmp_path / "run-1")
    assert main(["rm", "latest", "--yes", "--keep-folder"]) == 0
    assert (tmp_path / "run-1" / "manifest.json").exists()


@pytest.mark.parametrize(
    "manifest", [None, "{}", "[]", "not json", '{"run": {"id": "run-2"}}', '{"run_id": 7}']
)
def test_a_folder_that_is_not_surely_the_runs_is_left_alone(
    store: Store, blobs: Blobs, tmp_path: Path, capsys, manifest: str | None
):
    folder = tmp_path / "precious"
    add_run(store, blobs, "run-1", folder=folder)
    (folder / "manifest.json").unlink()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    assert main(["rm", "run-1", "--yes"]) == 0
    assert f"kept {folder}: its name and its manifest do not both name this run" in capsys.readouterr().out
    assert (folder / "deep" / "file").exists()


def test_a_folder_behind_a_link_is_left_alone(store: Store, blobs: Blobs, tmp_path: Path, capsys):
    folder = tmp_path / "real"
    add_run(store, blobs, "run-1", folder=folder)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert main(["rm", "run-1", "--yes"]) == 0
    assert (tmp_path / "elsewhere" / "deep" / "file").exists()


def test_the_folder_one_stands_in_is_left_alone(
    store: Store, blobs: Blobs, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    add_run(store, blobs, "run-1", folder=tmp_path / "run-1")
    monkeypatch.chdir(tmp_path / "run-1" / "deep")
    assert main(["rm", "run-1", "--yes"]) == 0
    assert "which is in use" in capsys.readouterr().out
    assert (tmp_path / "run-1").exists()


def test_a_folder_that_cannot_be_removed_is_said(
    store: Store, blobs: Blobs, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    add_run(store, blobs, "run-1", folder=tmp_path / "run-1")
    monkeypatch.setattr("shutil.rmtree", refuse)
    assert main(["rm", "run-1", "--yes"]) == 0
    assert "(Operation not permitted); remove it manually" in capsys.readouterr().out
    assert store.runs() == []


def test_old_runs_are_chosen_by_age_and_young_and_working_ones_stay(store: Store, blobs: Blobs, capsys):
    for run_id, age in (("old-1", 40.0), ("old-2", 31.0), ("young", 29.0), ("working", 50.0)):
        add_run(store, blobs, run_id, age_days=age)
    store.set_status("working", RunStatus.RUNNING)
    assert main(["rm", "--older-than", "30", "--yes"]) == 0
    assert {run.id for run in store.runs()} == {"young", "working"}
    assert main(["rm", "--older-than", "30", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing to remove."


def set_status_at(moment: float, run_id: str, *statuses: RunStatus) -> None:
    """As if the database's clock had stood at that moment."""
    with open_store(load_settings().store_url, clock=lambda: moment) as then:
        for status in statuses:
            then.set_status(run_id, status)


def test_a_run_at_work_is_not_removed_and_a_stalled_one_is(store: Store, blobs: Blobs, capsys):
    add_run(store, blobs, "run-1", age_days=1.0)
    store.set_status("run-1", RunStatus.RUNNING)
    assert main(["rm", "run-1", "--yes"]) == 2
    assert "is still running" in capsys.readouterr().err
    set_status_at(time.time() - 600, "run-1", RunStatus.RUNNING)
    assert main(["rm", "run-1", "--yes"]) == 0


def test_a_blob_that_a_run_being_created_has_just_put_stays(store: Store, blobs: Blobs, capsys, monkeypatch):
    """Its rows come after its blobs: in between nothing in the store says that there will be such a run."""
    (shared,) = add_run(store, blobs, "run-1", b"shared")
    live_blobs = Store.live_blobs

    def while_another_is_created(store: Store) -> set[str]:
        found = live_blobs(store)
        blobs.put_bytes(b"shared", "input")
        return found

    monkeypatch.setattr(Store, "live_blobs", while_another_is_created)
    assert main(["rm", "run-1", "--yes"]) == 0
    assert blobs.has(shared)
    assert "0 artifacts (1 of the last 10 minutes stay" in capsys.readouterr().out
    monkeypatch.undo()
    put_before(blobs, shared, 7200.0)
    assert collect_garbage(store, blobs).removed == 1


@pytest.mark.parametrize("name", ["run-1x", "precious", "run-12"])
def test_a_folder_that_is_not_named_like_the_run_is_left_alone(store: Store, blobs, tmp_path, capsys, name):
    add_run(store, blobs, "run-1", folder=tmp_path / name)
    assert main(["rm", "run-1", "--yes"]) == 0
    assert (tmp_path / name / "manifest.json").exists()


def test_a_second_folder_of_the_same_run_is_the_runs(store: Store, blobs: Blobs, tmp_path: Path):
    add_run(store, blobs, "run-1", folder=tmp_path / "run-1-2")
    assert main(["rm", "run-1", "--yes"]) == 0
    assert not (tmp_path / "run-1-2").exists()


def test_without_yes_and_without_a_terminal_nothing_is_removed(store: Store, blobs: Blobs, capsys):
    add_run(store, blobs, "run-1")
    assert main(["rm", "run-1"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert len(store.runs()) == 1


@pytest.mark.parametrize(("answer", "left", "code"), [("n\n", 1, 130), ("y\n", 0, 0)])
def test_a_terminal_is_asked(store: Store, blobs, capsys, monkeypatch, answer: str, left: int, code: int):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    add_run(store, blobs, "run-1")
    monkeypatch.setattr(rm.sys, "stdin", Terminal(answer))
    assert main(["rm", "run-1"]) == code
    assert "Remove 1 run for good?" in capsys.readouterr().out
    assert len(store.runs()) == left


def test_naming_nothing_or_nobody_is_exit_2(store: Store, blobs: Blobs, capsys):
    add_run(store, blobs, "run-1")
    assert main(["rm"]) == 2
    assert main(["rm", "run-1", "nobody", "--yes"]) == 2
    assert len(store.runs()) == 1
