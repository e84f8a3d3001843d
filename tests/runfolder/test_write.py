from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from msgspec import structs

import proctor.runfolder
from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.files import encode
from proctor.runfolder.read import RunData
from proctor.runfolder.series import NAME, read_series
from proctor.runfolder.write import RunFolder, claim_folder
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

SCHEMAS = Path(proctor.runfolder.__file__).parent / "schemas"


def valid(name: str, document: object) -> None:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


def write(path: Path, data: RunData, plan: Plan) -> RunFolder:
    folder = RunFolder(path)
    folder.begin(data.info, plan)
    for trial in data.trials:
        for record in trial.attempts:
            folder.append(trial.planned, record, record is trial.counted)
    return folder


def stored(store, data: RunData, plan: Plan) -> None:
    attempts = [(r, r is t.counted) for t in data.trials for r in t.attempts]
    store.import_run(data.info, plan.trials, attempts, warnings=plan.warnings)


def test_every_file_fits_its_published_schema(tmp_path, any_run, runs):
    folder = write(tmp_path, any_run, runs.plan(any_run))
    assert folder.finish(any_run, write_reports) == ()
    valid("manifest", json.loads((tmp_path / "manifest.json").read_text()))
    valid("summary", json.loads((tmp_path / "summary.json").read_text()))
    valid("metrics", json.loads((tmp_path / "metrics.json").read_text()))
    for line in (tmp_path / NAME).read_text().splitlines():
        valid("series", json.loads(line))
    results = list(tmp_path.glob("trials/*/*/result.json"))
    assert len(results) == (len(any_run.finished) if any_run.info.kind == "experiment" else 0)
    for path in results:
        valid("result", json.loads(path.read_text()))
    for name in ("report.md", "report.html", "README.md", "spec.json"):
        assert (tmp_path / name).stat().st_size
    assert (tmp_path / "SWEEP_SUMMARY.md").exists() == (
        any_run.info.kind == "experiment" and len(any_run.trials) > 1
    )
    assert (tmp_path / "result.json").exists() == (len(any_run.trials) == 1)
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


def test_a_folder_read_back_is_the_same_run(tmp_path, any_run, runs):
    write(tmp_path, any_run, runs.plan(any_run)).finish(any_run, write_reports)
    again = RunData.from_folder(tmp_path)
    assert again.trials == any_run.trials
    assert again.info == structs.replace(any_run.info, folder=str(tmp_path.resolve()))


def test_the_run_result_has_the_promised_fields(tmp_path, runs):
    data = runs.single()
    write(tmp_path, data, runs.plan(data)).finish(data, write_reports)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == json.loads((tmp_path / "trials/sort_list/0/result.json").read_text())
    assert result["name"] == "sorting"
    assert result["run_id"] == data.info.id
    assert result["parameters"] == {"size": 10_000, "algorithm": "timsort"}
    assert result["iterations"] == len(result["iteration_metrics"]) == 120
    assert {"mean", "p50", "p95", "p99"} <= result["metrics"]["duration_s"].keys()
    assert result["metrics"]["rss_bytes"]["count"] == 120
    assert result["environment"]["cpu_model"].startswith("Example")
    assert result["vcs"]["dirty"] is True
    assert result["artifacts"][0]["path"] == "trials/sort_list/0/artifacts/profile.prof"
    assert (result["tags"], result["notes"], result["status"]) == (["nightly"], "", "success")


def test_an_interval_that_was_measured_with_is_kept_as_it_is(tmp_path, runs):
    trial = runs.planned()
    record = runs.attempt(trial, [1.0, 2.0])
    stats = {**record.metrics["duration_s"], "p50_low": 1.1, "p50_high": 1.9}
    data = runs.of([(trial, [structs.replace(record, metrics={"duration_s": stats})])])
    RunFolder(tmp_path).finish(data, write_reports)
    assert RunData.from_folder(tmp_path).trials[0].interval == (1.1, 1.9)


def test_two_runs_of_one_second_in_one_folder_never_collide(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda _: claim_folder(tmp_path, "a/b", "run"), range(24)))
    assert len(set(claimed)) == 24
    assert all(path.is_dir() and path.parent.parent == tmp_path for path in claimed)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        claim_folder(tmp_path / "file", "name", "run")


def test_each_attempt_is_on_disk_when_append_returns(tmp_path, runs):
    data = runs.two()
    folder = RunFolder(tmp_path)
    folder.begin(data.info, runs.plan(data))
    for done, trial in enumerate(data.trials[:3], 1):
        folder.append(trial.planned, trial.counted, counts=True)
        seen = RunData.from_folder(tmp_path)
        assert len(seen.finished) == done
        assert seen.info.status is RunStatus.INTERRUPTED
    folder.close()


def test_another_runs_folder_is_refused(tmp_path, runs):
    data = runs.single()
    RunFolder(tmp_path).begin(data.info, runs.plan(data))
    before = (tmp_path / "manifest.json").read_bytes()
    RunFolder(tmp_path).begin(data.info, runs.plan(data))
    assert (tmp_path / "manifest.json").read_bytes() == before
    with pytest.raises(UsageError, match="the folder of another run"):
        RunFolder(tmp_path).begin(structs.replace(data.info, id="other"), runs.plan(data))


def test_finish_adds_what_a_crash_kept_from_the_series(tmp_path, runs):
    data = runs.failures()
    folder = RunFolder(tmp_path)
    folder.begin(data.info, runs.plan(data))
    first = data.trials[0]
    folder.append(first.planned, first.counted, counts=True)
    folder.close()
    with (tmp_path / NAME).open("ab") as stream:
        stream.write(b'{"torn')
    RunFolder(tmp_path).finish(data, write_reports)
    assert RunData.from_folder(tmp_path).trials == data.trials
    assert (tmp_path / "trials/pragma_profile/3/result.json").exists()


def test_finish_replaces_a_series_that_contradicts(tmp_path, runs):
    data = runs.failures()
    folder = write(tmp_path, data, runs.plan(data))
    forged = structs.replace(data.trials[0].counted, number=9)
    folder.append(data.trials[0].planned, forged, counts=True)
    folder.finish(data, write_reports)
    assert RunData.from_folder(tmp_path).trials == data.trials


def test_finish_replaces_a_series_that_cannot_be_read(tmp_path, runs):
    data = runs.failures()
    write(tmp_path, data, runs.plan(data)).close()
    (tmp_path / NAME).write_text("garbage\n")
    RunFolder(tmp_path).finish(data, write_reports)
    assert RunData.from_folder(tmp_path).trials == data.trials


def test_finish_without_a_beginning_writes_the_manifest_too(tmp_path, runs):
    data = replace(runs.lines(), warnings=("a warning of the plan",))
    RunFolder(tmp_path / "new").finish(data, write_reports)
    again = RunData.from_folder(tmp_path / "new")
    assert again.trials == data.trials
    assert again.warnings == data.warnings


def test_reopen_brings_a_folder_in_line_with_the_store(tmp_path, runs):
    data = runs.failures()
    plan = runs.plan(data)
    with open_store(str(tmp_path / "s.db")) as store:
        stored(store, data, plan)
        folder = RunFolder(tmp_path / "f")
        folder.begin(data.info, plan)
        folder.append(data.trials[1].planned, data.trials[1].counted, counts=True)
        folder.close()
        with (tmp_path / "f" / NAME).open("ab") as stream:
            stream.write(b"{")
        again = RunFolder(tmp_path / "f")
        again.reopen(store)
        assert len(list(read_series(tmp_path / "f"))) == sum(len(trial.attempts) for trial in data.trials)
        again.append(data.trials[5].planned, runs.attempt(data.trials[5].planned), counts=True)
        again.close()
    assert len(RunData.from_folder(tmp_path / "f").finished) == 6


def test_reopen_makes_a_folder_that_somebody_removed(tmp_path, runs):
    path = tmp_path / "gone"
    data = runs.renamed(runs.lines(), folder=str(path))
    with open_store(str(tmp_path / "s.db")) as store:
        stored(store, data, replace(runs.plan(data), warnings=("a warning of the plan",)))
        folder = RunFolder(path)
        folder.reopen(store)
        folder.close()
        again = RunData.from_folder(path)
        assert again.trials == RunData.from_store(store, data.info.id).trials
        assert again.warnings == ("a warning of the plan",)


def test_artifacts_are_copied_in_when_blobs_are_given(tmp_path, runs):
    blobs = open_blobs(tmp_path / "blobs")
    trial = runs.planned()
    same = blobs.put_bytes(b"one", "logs/out.txt")
    other = blobs.put_bytes(b"two", "logs/out.txt")
    record = runs.attempt(trial, artifacts=(same, other))
    data = runs.of([(trial, [record])])
    folder = RunFolder(tmp_path / "run", blobs=blobs)
    folder.begin(data.info, runs.plan(data))
    folder.append(trial, record, counts=True)
    folder.finish(data, write_reports)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    contents = [(tmp_path / "run" / each["path"]).read_bytes() for each in result["artifacts"]]
    assert contents == [b"one", b"two"]


def test_a_missing_blob_is_a_clear_error(tmp_path, runs):
    trial = runs.planned()
    lost = structs.replace(open_blobs(tmp_path / "elsewhere").put_bytes(b"x", "x"), digest="0" * 64)
    folder = RunFolder(tmp_path / "run", blobs=open_blobs(tmp_path / "blobs"))
    data = runs.of([(trial, [runs.attempt(trial, artifacts=(lost,))])])
    folder.begin(data.info, runs.plan(data))
    with pytest.raises(StoreError, match="is not in the store"):
        folder.append(trial, data.trials[0].counted, counts=True)
    folder.close()


def test_what_is_not_a_run_folder_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match=r"no manifest\.json"):
        RunData.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"plan": {}}, r"plan\.trials"),
        ({"plan": {"trials": [], "warnings": [1]}}, r"plan\.warnings"),
        ({"run": []}, "'run' must be an object"),
        ({"run": {}}, "'id' is missing"),
        ({"environment": 3}, "'environment' must be an object"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, runs, change, reason):
    data = runs.single()
    RunFolder(tmp_path).begin(data.info, runs.plan(data))
    manifest = json.loads((tmp_path / "manifest.json").read_text()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=reason):
        RunData.from_folder(tmp_path)


def test_a_wrong_status_or_tag_is_refused(tmp_path, runs):
    data = runs.single()
    write(tmp_path, data, runs.plan(data)).finish(data, write_reports)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for name, value, reason in (
        ("status", "napping", "'status': invalid enum value 'napping'"),
        ("tags", [1], r"'tags\[0\]': expected `str`, got `int`"),
    ):
        (tmp_path / "summary.json").write_text(json.dumps(summary | {"run": summary["run"] | {name: value}}))
        with pytest.raises(UsageError, match=reason):
            RunData.from_folder(tmp_path)


def test_iterations_beyond_the_budget_stay_on_disk_and_the_interval_stays(tmp_path, runs, monkeypatch):
    data = runs.lines()
    write(tmp_path, data, runs.plan(data)).finish(data, write_reports)
    monkeypatch.setattr("proctor.runfolder.read.ITERATIONS_KEPT", 70)
    lean = RunData.from_folder(tmp_path)
    assert lean.trimmed
    assert [len(trial.counted.iterations) for trial in lean.trials] == [30, 30, 0, 0, 0, 0, 0]
    assert [trial.interval for trial in lean.trials] == [trial.interval for trial in data.trials]
    assert [row.record for row in lean.rows()] == [trial.counted for trial in data.trials]
    RunFolder(tmp_path).finish(lean, write_reports)
    assert RunData.from_folder(tmp_path).info.status is RunStatus.DONE


def test_a_store_with_trimmed_data_still_gives_complete_folders(tmp_path, runs, monkeypatch):
    data = runs.lines()
    monkeypatch.setattr("proctor.runfolder.read.ITERATIONS_KEPT", 10)
    with open_store(str(tmp_path / "s.db")) as store:
        stored(store, data, runs.plan(data))
        lean = RunData.from_store(store, data.info.id)
        RunFolder(tmp_path / "f").finish(lean, write_reports)
    monkeypatch.undo()
    assert RunData.from_folder(tmp_path / "f").trials == data.trials


def test_hostile_subjects_stay_inside_the_folder(tmp_path, runs):
    trial = runs.planned(subject="../../../etc/passwd")
    record = runs.attempt(trial, outcome=Outcome.PASSED)
    data = runs.of([(trial, [record])])
    write(tmp_path / "run", data, runs.plan(data)).finish(data, write_reports)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert len(list((tmp_path / "run" / "trials").iterdir())) == 1


def test_a_brief_reading_says_how_trials_ended_and_streams_the_rest(runs, tmp_path):
    data = runs.failures()
    attempts = [(record, record is trial.counted) for trial in data.trials for record in trial.attempts]
    with open_store(str(tmp_path / "store.db")) as store:
        store.import_run(data.info, [trial.planned for trial in data.trials], attempts)
        brief = RunData.from_store(store, data.info.id, brief=True)
        assert [trial.outcome for trial in brief.trials] == [trial.outcome for trial in data.trials]
        assert [len(each.attempts) for each in brief.trials] == [len(each.attempts) for each in data.trials]
        assert all(not trial.counted.metrics for trial in brief.trials if trial.counted)
        whole = RunData.from_store(store, data.info.id)
        assert [row.record for row in brief.rows()] == [row.record for row in whole.rows()]


def test_a_large_run_says_what_it_says_when_it_is_held_compactly(runs, tmp_path, monkeypatch):
    data = runs.lines()
    with open_store(str(tmp_path / "s.db")) as store:
        stored(store, data, runs.plan(data))
        whole = RunData.from_store(store, data.info.id)
        monkeypatch.setattr("proctor.runfolder.read.COMPACT_FROM", 1)
        compact = RunData.from_store(store, data.info.id)
        assert list(compact.rows()) == list(whole.rows())
    for one, other in zip(compact.trials, whole.trials, strict=True):
        assert (one.planned, one.outcome, one.interval) == (other.planned, other.outcome, other.interval)
        assert one.values("duration_s") == other.values("duration_s")
        assert one.counted.metrics == other.counted.metrics
        assert one.counted.phases_s == other.counted.phases_s
        assert encode(one.counted.metrics) == encode(other.counted.metrics)
        assert repr(one.counted.metrics) == repr(other.counted.metrics)


@pytest.mark.parametrize("source", ["store", "folder"])
def test_records_of_large_runs_share_what_is_alike(runs, tmp_path, monkeypatch, source):
    monkeypatch.setattr("proctor.runfolder.read.COMPACT_FROM", 1)
    pairs = []
    for at in range(4):
        trial = runs.planned(at, {"n": at})
        enforced = {"cpu": "cgroup", "odd": [1]} if at == 3 else {"cpu": "cgroup"}
        ledger = {"backend": "bubblewrap " * 3, "enforced": enforced}
        pairs.append((trial, [runs.attempt(trial, ledger=ledger, notes=("a note",))]))
    data = runs.of(pairs)
    if source == "folder":
        RunFolder(tmp_path / "f").finish(data, write_reports)
        found = RunData.from_folder(tmp_path / "f")
    else:
        with open_store(str(tmp_path / "store.db")) as store:
            attempts = [(tries[0], True) for _, tries in pairs]
            store.import_run(data.info, [trial for trial, _ in pairs], attempts)
            found = RunData.from_store(store, data.info.id)
    assert [trial.counted for trial in found.trials] == [trial.counted for trial in data.trials]
    first, second = (trial.counted.ledger for trial in found.trials[:2])
    assert first["enforced"]["cpu"] is second["enforced"]["cpu"]
    assert first["backend"] is second["backend"]
    assert first == {"backend": "bubblewrap " * 3, "enforced": {"cpu": "cgroup"}}


def test_numbers_that_are_equal_and_written_differently_stay_as_they_were(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("proctor.runfolder.read.COMPACT_FROM", 1)
    rewards = [1, 1.0, True, 1]
    trials = [runs.planned(at, {"n": at}) for at in range(4)]
    pairs = [
        (trial, [structs.replace(runs.attempt(trial), metrics={"rewards": {"reward": each}})])
        for trial, each in zip(trials, rewards, strict=True)
    ]
    RunFolder(tmp_path / "f").finish(runs.of(pairs), write_reports)
    found = [trial.counted.metrics["rewards"] for trial in RunData.from_folder(tmp_path / "f").trials]
    assert [repr(each["reward"]) for each in found] == ["1", "1.0", "True", "1"]
