from __future__ import annotations

import importlib.metadata

import pytest

from proctor.errors import StoreError, UsageError
from proctor.render import reporters
from proctor.render.reporters import available, register_reporter, write_reports
from proctor.runfolder.write import RunFolder


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(reporters, "REPORTERS", {})


def test_a_decorated_function_writes_at_the_end_of_every_run(tmp_path, runs):
    @register_reporter("csv")
    def csv(data, folder):
        (folder / "points.csv").write_text(f"{len(data.trials)}\n")

    assert RunFolder(tmp_path).finish(runs.lines(), write_reports) == ()
    assert (tmp_path / "points.csv").read_text() == "7\n"


def test_a_failing_reporter_is_named_and_the_others_still_write(tmp_path, runs, caplog):
    @register_reporter("bad")
    def bad(data, folder):
        raise ZeroDivisionError("oh no")

    @register_reporter("rude")
    def rude(data, folder):
        raise UsageError("I only do tasks")

    @register_reporter("zz-last")
    def last(data, folder):
        (folder / "last").touch()

    failures = RunFolder(tmp_path).finish(runs.lines(), write_reports)
    assert [(each.name, each.error) for each in failures] == [
        ("bad", "ZeroDivisionError: oh no"),
        ("rude", "I only do tasks"),
    ]
    assert "'bad' was not written" in caplog.text
    assert (tmp_path / "last").exists()
    assert (tmp_path / "report.html").exists()


def test_a_full_disk_is_not_swallowed(tmp_path, runs):
    @register_reporter("full")
    def full(data, folder):
        raise StoreError("no space is left")

    with pytest.raises(StoreError):
        write_reports(runs.single(), tmp_path)


def test_a_name_is_taken_once(runs):
    @register_reporter("mine")
    def mine(data, folder):
        """Nothing."""

    register_reporter("mine")(mine)
    with pytest.raises(UsageError, match="already registered"):
        register_reporter("mine")(lambda data, folder: None)


def test_only_the_named_formats_are_written_and_unknown_names_are_refused(tmp_path, runs):
    write_reports(runs.single(), tmp_path, ["md"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "report.md"]
    with pytest.raises(UsageError, match="'pdf' is not a report format; there are html, json, md"):
        write_reports(runs.single(), tmp_path, ["pdf"])


def test_entry_points_add_reporters_and_a_broken_one_is_reported(tmp_path, runs, monkeypatch):
    def points(group):
        assert group == "proctor.reporters"
        return [
            importlib.metadata.EntryPoint("dumb", "os.path:basename", group),
            importlib.metadata.EntryPoint("absent", "no_such_module_here:x", group),
            importlib.metadata.EntryPoint("html", "os.path:basename", group),
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    found = available()
    assert callable(found["dumb"])
    assert found["html"].__module__ == "proctor.render.results.folder"
    failures = write_reports(runs.single(), tmp_path)
    assert {each.name for each in failures} == {"dumb", "absent"}
    assert "No module named" in next(each.error for each in failures if each.name == "absent")
