from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.describe import describe
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render import reporters
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.settings import load_settings
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

RUN = "20260101T000000-abcdef"


@pytest.fixture
def run(tmp_path):
    """A run of three points with an artifact, in the store and in its folder."""
    settings = load_settings()
    artifact = open_blobs(settings.blobs_url).put_bytes(b"profile", "p.prof")
    trials = tuple(
        PlannedTrial(
            key=f"{size:064x}",
            index=at,
            kind="experiment",
            subject="demo",
            subject_digest="d",
            body=0,
            params={"size": size},
        )
        for at, size in enumerate((1, 10, 100))
    )
    plan = Plan(trials=trials)
    folder = tmp_path / "results" / "demo" / RUN
    info = RunInfo(
        id=RUN, name="demo", kind="experiment", status=RunStatus.DONE, created_at=1.0, seed=0, total=3,
        folder=str(folder), plan_digest=plan.digest, resolved={"name": "demo"},
    )  # fmt: skip
    rows = ({"duration_s": 0.1}, {"duration_s": 0.2})
    records = [
        AttemptRecord(
            key=trial.key,
            number=1,
            outcome=Outcome.PASSED,
            started_at=2.0,
            ended_at=3.0,
            artifacts=(artifact,),
            metrics={"duration_s": describe([0.1, 0.2])},
            iterations=rows,
        )
        for trial in trials
    ]
    with open_store(settings.store_url) as store:
        store.import_run(info, trials, [(record, True) for record in records])
        RunFolder(folder, blobs=open_blobs(settings.blobs_url)).finish(
            RunData.from_store(store, RUN), write_reports
        )
    return folder


def test_reports_are_written_again_where_the_run_is(run, capsys):
    (run / "report.html").unlink()
    assert main(["report", "latest"]) == 0
    assert (run / "report.html").is_file()
    printed = capsys.readouterr().out.split()
    assert str(run / "report.html") in printed
    assert str(run / "README.md") in printed


def test_a_folder_needs_no_store(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PROCTOR_STORE", "/nowhere/at/all.db")
    assert main(["report", str(run), "--format", "html", "--output", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["written"] == ["report.html"]
    assert told["summary"]["trials"]["finished"] == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_what_the_page_shows_is_written_as_data(run, tmp_path, capsys):
    assert main(["report", "latest", "--format", "html", "--document", str(tmp_path / "run.json")]) == 0
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["kind"].endswith(" run")
    assert found["headline"]
    assert "reproduce" in [section.get("name") for section in found["sections"]]
    capsys.readouterr()


def test_an_unknown_format_is_a_usage_error_that_names_the_others(run, capsys):
    assert main(["report", RUN, "--format", "pdf"]) == 2
    assert "there are html, json, md" in capsys.readouterr().err


def test_a_folder_that_is_gone_says_what_to_do(run, capsys):
    run.rename(run.with_name("moved"))
    assert main(["report", RUN]) == 2
    assert f"proctor export {RUN}" in capsys.readouterr().err
    assert main(["report", RUN, "--output", str(run.with_name("new"))]) == 0


def test_an_unknown_run_is_a_usage_error(run, capsys):
    assert main(["report", "nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_a_failing_reporter_is_exit_code_1(run, monkeypatch, capsys):
    def bad(data, folder):
        raise RuntimeError("broken")

    monkeypatch.setattr(reporters, "REPORTERS", {"bad": bad})
    assert main(["report", RUN, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failures"] == [
        {"name": "bad", "error": "RuntimeError: broken"}
    ]


def test_open_shows_the_page(run, monkeypatch):
    shown = []
    monkeypatch.setattr("click.launch", shown.append)
    assert main(["report", RUN, "--open"]) == 0
    assert shown == [str(run / "report.html")]


def test_export_and_import_by_command(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "demo"]) == 0
    default = Path(capsys.readouterr().out.strip())
    assert default == Path(f"demo-{RUN}")
    assert (default / "trials/demo/2/artifacts/p.prof").read_bytes() == b"profile"
    assert main(["export", RUN, "elsewhere", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": RUN, "path": "elsewhere"}
    assert main(["export", RUN, "elsewhere"]) == 2
    assert "already exists" in capsys.readouterr().err

    assert main(["import", "elsewhere"]) == 0
    assert "was already in the store" in capsys.readouterr().out
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "other"))
    assert main(["import", "elsewhere", str(default)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{RUN}  demo  added",
        f"{RUN}  demo  was already in the store",
    ]
    assert main(["import", "elsewhere", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"run_id": RUN, "name": "demo", "added": False}]
    assert main(["import", str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err
