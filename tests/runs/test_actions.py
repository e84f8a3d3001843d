"""What becomes of a run, the same for the server and the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.errors import RunStateError
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runs.actions import cancel, delete, resume
from proctor.settings import Settings, load_settings
from proctor.store.blobs import blobs_of
from proctor.store.open import open_store
from proctor.store.service.ownership import Owner
from proctor.store.store import Store

AddRun = Callable[..., Path]


@pytest.fixture
def settings() -> Settings:
    return load_settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store_url) as opened:
        yield opened


@pytest.fixture
def add_run(store: Store, tmp_path: Path) -> AddRun:
    """A queued run of one trial, with a folder that names it."""

    def add(run_id: str, folder: Path | None = None) -> Path:
        folder = folder or tmp_path / "results" / "bench" / run_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps({"run": {"id": run_id}}))
        trial = PlannedTrial(key="k", index=0, kind="experiment", subject="s", subject_digest="d", body=0)
        info = RunInfo(
            id=run_id,
            name="bench",
            kind="experiment",
            status=RunStatus.INTERRUPTED,
            created_at=time.time(),
            seed=1,
            folder=str(folder),
        )
        store.create_run(info, Plan(trials=(trial,)), owner=Owner(user="ada"))
        return folder

    return add


def test_a_run_cancelled_from_the_command_line_leaves_the_queue_of_the_server(store: Store, add_run: AddRun):
    add_run("run-1")
    assert store.service.ownership.place("run-1").wanted
    assert main(["cancel", "run-1"]) == 0
    assert not store.service.ownership.place("run-1").wanted
    assert store.service.queue.waiting() == []


def test_cancelling_a_run_that_no_server_knows_does_not_make_it_the_servers(store: Store, settings: Settings):
    trial = PlannedTrial(key="k", index=0, kind="experiment", subject="s", subject_digest="d", body=0)
    info = RunInfo(
        id="run-1", name="bench", kind="experiment", status=RunStatus.PENDING, created_at=1.0, seed=1
    )
    store.create_run(info, Plan(trials=(trial,)))
    assert cancel(store, blobs_of(settings), "run-1").trials == 1
    assert store._db.read("SELECT count(*) FROM run_service")[0][0] == 0


def test_a_cancelled_run_does_not_go_on(store: Store, settings: Settings, add_run: AddRun):
    add_run("run-1")
    assert not cancel(store, blobs_of(settings), "run-1").was_over
    assert cancel(store, blobs_of(settings), "run-1").was_over
    with pytest.raises(RunStateError, match="cancelled and cannot go on"):
        resume(store, "run-1", owner="ada")


def test_deleting_removes_the_folder_of_the_run(store: Store, settings: Settings, add_run: AddRun):
    folder = add_run("run-1")
    assert delete(store, blobs_of(settings), settings, "run-1").kept_folder == ""
    assert not folder.exists()


def test_deleting_spares_proctors_home(store: Store, tmp_path: Path, add_run: AddRun):
    folder = add_run("run-1")
    home = folder / "home"
    home.mkdir()
    settings = Settings(home=home)
    kept = delete(store, blobs_of(settings), settings, "run-1").kept_folder
    assert str(home) in kept
    assert home.is_dir()


def test_deleting_spares_the_home_of_the_person(store, settings, add_run, monkeypatch: pytest.MonkeyPatch):
    folder = add_run("run-1")
    monkeypatch.setenv("HOME", str(folder))
    assert "in use" in delete(store, blobs_of(settings), settings, "run-1").kept_folder
    assert folder.is_dir()


def test_deleting_spares_the_folder_of_another_run(store: Store, settings: Settings, add_run: AddRun):
    outer = add_run("run-1")
    inner = add_run("run-2", outer / "nested" / "run-2")
    assert str(inner) in delete(store, blobs_of(settings), settings, "run-1").kept_folder
    assert (inner / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["results", "run-10", "run-1.old"])
def test_deleting_spares_a_folder_that_no_run_was_given(store, settings, add_run, tmp_path: Path, name: str):
    folder = add_run("run-1", tmp_path / name)
    assert "do not both name this run" in delete(store, blobs_of(settings), settings, "run-1").kept_folder
    assert folder.is_dir()


def test_deleting_does_not_follow_a_link(store: Store, settings: Settings, add_run: AddRun, tmp_path: Path):
    folder = add_run("run-1")
    folder.rename(tmp_path / "precious")
    folder.symlink_to(tmp_path / "precious")
    assert delete(store, blobs_of(settings), settings, "run-1").kept_folder
    assert (tmp_path / "precious" / "manifest.json").is_file()
