from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from msgspec import structs

import proctor.runfolder
from proctor.model.record import Artifact
from proctor.model.trial import RunStatus
from proctor.render.document.markdown import markdown
from proctor.render.reporters import write_reports
from proctor.render.results import folder, matrix, trial_files
from proctor.runfolder.read import RunData, read_manifest
from proctor.runfolder.transfer import export_run, import_folder
from proctor.runfolder.write import RunFolder
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

SCHEMAS = Path(proctor.runfolder.__file__).parent / "schemas"
RUBRICS = [
    dict(zip(("id", "description", "weight", "unit_score", "judge_score", "status"), each, strict=True))
    for each in (
        ("r1", "it works", 3.0, 1.0, 0.5, "tested"),
        ("r2", "fast", 1.0, 0.0, None, "tested"),
        ("r3", "nice", 4.0, None, None, "untested"),
    )
]


def valid(name: str, path: Path) -> dict:
    document = json.loads(path.read_text())
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def write(path: Path, data: RunData, rolled, **options) -> None:
    folder = RunFolder(path, **options)
    folder.begin(data.info, rolled.plan(data))
    assert folder.finish(data, write_reports) == ()


def test_every_promised_file_is_there_and_fits_its_schema(tmp_path, rolled):
    data = rolled.comparison(rollouts=2)
    write(tmp_path, data, rolled)
    manifest = valid("manifest", tmp_path / "manifest.json")
    assert manifest["name"] == "model_comparison"
    assert manifest["created_at"] == "2025-10-09T08:53:19Z"
    assert manifest["config"] == {"tasks": [{"dataset": "tasks"}]}
    assert len(manifest["results"]) == len(data.trials)
    runs = (tmp_path / "runs.txt").read_text().splitlines()
    assert runs == [each["run_dir"] for each in manifest["results"]]
    for each in runs:
        place = tmp_path / each
        valid("evaluation_results", place / "evaluation_results.json")
        for name in ("scoring_results.md", "artifacts/notes.md"):
            assert (place / name).is_file()
        assert all(path.stat().st_size for path in place.rglob("*") if path.is_file())
        json.loads((place / "artifacts/repo_info.json").read_text())
    assert len(list((tmp_path / "task_results").iterdir())) == 9
    for path in (tmp_path / "task_results").iterdir():
        valid("task_results", path)
    summary = valid("summary", tmp_path / "summary.json")
    assert [arm["label"] for arm in summary["arms"]][:2] == ["oracle", "terminal · local/large"]
    assert "# model\\_comparison" in (tmp_path / "summary.md").read_text()


def test_the_manifest_still_reads_as_one_and_writing_twice_changes_nothing(tmp_path, rolled):
    data = rolled.comparison(rollouts=1)
    write(tmp_path, data, rolled)
    first = (tmp_path / "manifest.json").read_bytes()
    info, planned, _ = read_manifest(tmp_path)
    assert info.id == data.info.id
    assert tuple(planned) == rolled.plan(data).trials
    write(tmp_path, data, rolled)
    assert (tmp_path / "manifest.json").read_bytes() == first
    assert RunData.from_folder(tmp_path).trials == data.trials


def test_a_run_that_was_cut_off_lists_what_it_has(tmp_path, rolled):
    data = rolled.study().cell("a", [1.0, None]).data(status=RunStatus.INTERRUPTED)
    write(tmp_path, data, rolled)
    results = valid("manifest", tmp_path / "manifest.json")["results"]
    assert [each["status"] for each in results] == ["passed", "pending"]
    assert (tmp_path / "runs.txt").read_text() == "trials/a/0\n"


def test_a_second_attempt_has_a_folder_of_its_own(tmp_path, rolled):
    trial = rolled.planned(0, "a")
    tries = [rolled.record(trial, "worker_lost"), rolled.record(trial, "passed", number=2)]
    write(tmp_path, rolled.of([(trial, tries)]), rolled)
    assert (tmp_path / "runs.txt").read_text() == "trials/a/0.attempt-2\n"
    assert (
        valid("evaluation_results", tmp_path / "trials/a/0.attempt-2/evaluation_results.json")["attempt"] == 2
    )


def test_experiments_get_none_of_it(tmp_path, rolled):
    data = rolled.comparison(rollouts=1)
    folder.write_rollouts(replace(data, info=structs.replace(data.info, kind="experiment")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reports_written_elsewhere_need_no_manifest(tmp_path, rolled):
    folder.write_rollouts(rolled.study().cell("a", [1.0]).data(), tmp_path)
    assert (tmp_path / "summary.md").is_file()
    assert not (tmp_path / "manifest.json").exists()


def test_what_the_sandbox_gave_is_kept_and_survives_a_journey(tmp_path, rolled):
    blobs = open_blobs(tmp_path / "blobs")
    trial = rolled.planned(0, "org/a")
    contents = {
        "artifacts/diff.patch": b"diff --git\n",
        "logs/eval.log": b"ran\n",
        "artifacts/files/a b": b"x",
    }
    kept: list[Artifact] = [blobs.put_bytes(data, name) for name, data in contents.items()]
    data = rolled.of([(trial, [rolled.record(trial, artifacts=tuple(kept))])])
    with open_store(str(tmp_path / "one.db")) as store:
        store.import_run(data.info, rolled.plan(data).trials, [(data.trials[0].counted, True)])
        export_run(store, blobs, data.info.id, tmp_path / "out", write_reports)
    for name, content in contents.items():
        assert (tmp_path / "out/trials/org__a/0" / name).read_bytes() == content
    with open_store(str(tmp_path / "two.db")) as store:
        assert import_folder(store, open_blobs(tmp_path / "blobs2"), tmp_path / "out").added


def scored(trial, record) -> str:
    return markdown(trial_files.scoring(trial, record, trial_files.evaluation("run", trial, record)))


def test_unit_and_judge_scores_stand_side_by_side_and_the_untested_leave_the_denominator(rolled):
    trial = rolled.planned(0, "a")
    record = rolled.record(trial, "partial", 0.75, metrics={"rubrics": RUBRICS, "rewards": {"reward": 0.75}})
    found = trial_files.evaluation("run", trial, record)
    assert found["unit_score"] == pytest.approx(3 / 4)
    assert found["judge_score"] == pytest.approx(0.5)
    text = markdown(trial_files.scoring(trial, record, found))
    assert "| unit score | judge score |" in text
    assert "| 0.750 | 0.500 |" in text
    assert "| r3 | nice | 4 | – | – | untested |" in text
    assert "1 of 3 rubrics are untested: shown here, and not in the denominator." in text


def test_the_scoring_says_who_is_to_blame_and_why(rolled):
    trial = rolled.planned(0, "a")
    text = scored(trial, rolled.record(trial, "sandbox_error"))
    assert "Not in the score: caused by the infrastructure" in text
    assert "SandboxError" in text
    several = rolled.record(
        trial, metrics={"rewards": {"speed": 0.5, "size": 1.0}, "steps": {"one": 1.0, "two": None}}
    )
    text = scored(trial, several)
    assert "## Rewards" in text
    assert "## Steps" in text


def test_notes_tell_what_a_reader_needs(rolled):
    trial = rolled.planned(0, "a")
    noted = rolled.record(trial, notes=("host-root: <not> elsewhere",), usage={"steps": 3})
    said = markdown(trial_files.notes(trial, noted))
    assert "- host-root: &lt;not&gt; elsewhere" in said
    assert "- used: steps 3" in said
    assert "No notes." in markdown(trial_files.notes(trial, rolled.record(trial)))
    lost = trial_files.notes(trial, rolled.record(trial, "sandbox_error"))
    assert "start: the sandbox" in markdown(lost)


def test_the_summary_has_matrix_scores_and_tasks(rolled):
    text = markdown(folder.summary(rolled.comparison()))
    assert "| **oracle** | **100 %** |" in text
    assert "| config-edit | `✓✓✓✓✓` |" in text
    assert "(not scored)" in text
    assert "flaky" in text
    assert "| mean of a trial | agent | verify |" in text
    assert "| around a trial, median | image | start |" in text
    assert "prompt tokens" in text


def test_a_summary_of_many_tasks_is_cut_and_one_without_times_is_short(rolled, monkeypatch):
    monkeypatch.setattr(matrix, "MOST_ROWS", 2)
    text = markdown(folder.summary(rolled.comparison())).replace("\\", "")
    assert "And 7 more; task_results/ lists all of them." in text
    trial = rolled.planned(0, "a")
    bare = rolled.of([(trial, [rolled.record(trial, phases_s={}, ledger={})])])
    assert "Time and resources" not in markdown(folder.summary(bare))
    timed = rolled.of([(trial, [rolled.record(trial, ledger={})])])
    assert "Time and resources" in markdown(folder.summary(timed))


def test_a_manifest_of_another_hand_is_read_whole(tmp_path, rolled):
    data = rolled.comparison(rollouts=1)
    write(tmp_path, data, rolled)
    path = tmp_path / "manifest.json"
    ours = path.read_text()
    path.write_text(json.dumps(json.loads(ours)))
    folder.write_run(data, tmp_path)
    assert json.loads(path.read_text()) == json.loads(ours)
