from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

import proctor.runfolder
from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.plan import Plan
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.transfer import export_run, import_folder
from proctor.store.blobs import FolderBlobs, open_blobs
from proctor.store.open import open_store


@pytest.fixture
def place(tmp_path, runs):
    """A store with one run that has two attempts, artifacts and a failure."""
    blobs = open_blobs(tmp_path / "blobs")
    data = runs.failures()
    profile = blobs.put_bytes(b"profile bytes", "profile.prof", "application/x-profile")
    odd = blobs.put_bytes(b"odd", "../../../odd name")
    plan = Plan(trials=tuple(trial.planned for trial in data.trials), warnings=("the plan warned",))
    attempts = []
    for trial in data.trials:
        for record in trial.attempts:
            counts = record is trial.counted
            attempts.append((replace(record, artifacts=(profile, odd) if counts else ()), counts))
    store = open_store(str(tmp_path / "a.db"))
    store.import_run(data.info, plan.trials, attempts, warnings=plan.warnings)
    yield store, blobs, data.info.id
    store.close()


@pytest.fixture
def other(tmp_path):
    with open_store(str(tmp_path / "b.db")) as store:
        yield store, open_blobs(tmp_path / "other-blobs")


def rows(store, run_id):
    return [(row.trial, row.record, row.counts) for row in store.attempts(run_id)]


def test_a_run_moves_to_another_store_without_loss(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    there, their_blobs = other
    result = import_folder(there, their_blobs, tmp_path / "out")
    assert result.added
    assert rows(there, run_id) == rows(store, run_id)
    assert list(there.planned(run_id)) == list(store.planned(run_id))
    assert there.warnings(run_id) == store.warnings(run_id) == ("the plan warned",)
    assert replace(there.run(run_id), folder="") == replace(store.run(run_id), folder="")
    for _, record, _ in rows(there, run_id):
        for artifact in record.artifacts:
            assert their_blobs.path(artifact.digest).read_bytes() == blobs.path(artifact.digest).read_bytes()


def test_a_second_export_of_the_import_is_the_same_data(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "one", write_reports)
    import_folder(*other, tmp_path / "one")
    export_run(*other, run_id, tmp_path / "two", write_reports)
    one, two = RunData.from_folder(tmp_path / "one"), RunData.from_folder(tmp_path / "two")
    assert one.trials == two.trials
    for name in ("series.jsonl", "manifest.json", "metrics.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_export_of_rollouts_has_the_result_of_each(tmp_path, runs):
    data = runs.rollouts()
    with open_store(str(tmp_path / "rollouts.db")) as store:
        attempts = [(record, record is each.counted) for each in data.trials for record in each.attempts]
        store.import_run(data.info, [each.planned for each in data.trials], attempts)
        export_run(store, open_blobs(tmp_path / "blobs"), data.info.id, tmp_path / "out", write_reports)
    schema = json.loads((Path(proctor.runfolder.__file__).parent / "schemas/result.json").read_text())
    results = list((tmp_path / "out").glob("trials/*/*/result.json"))
    assert len(results) == len(data.finished)
    for each in results:
        jsonschema.validate(json.loads(each.read_text()), schema)


def test_importing_twice_changes_nothing_and_a_difference_is_refused(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    assert import_folder(*other, tmp_path / "out").added
    assert not import_folder(*other, tmp_path / "out").added
    assert not import_folder(store, blobs, tmp_path / "out").added
    series = tmp_path / "out" / "series.jsonl"
    lines = series.read_text().splitlines()
    series.write_text("\n".join([*lines[:-1], lines[-1].replace('"worker":"w1"', '"worker":"w2"')]) + "\n")
    with pytest.raises(UsageError, match=f"already has run {run_id}, and it differs"):
        import_folder(*other, tmp_path / "out")


def test_an_export_never_overwrites(tmp_path, place):
    store, blobs, run_id = place
    (tmp_path / "out").mkdir()
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    with pytest.raises(UsageError, match="already exists"):
        export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        export_run(store, blobs, run_id, tmp_path / "file", write_reports)


def test_a_failed_export_leaves_nothing(tmp_path, place):
    store, blobs, run_id = place
    for _, record, counts in rows(store, run_id):
        if counts:
            blobs.remove(record.artifacts[0].digest)
    with pytest.raises(StoreError, match="is not in the store"):
        export_run(store, blobs, run_id, tmp_path / "exports" / "out", write_reports)
    assert list((tmp_path / "exports").iterdir()) == []
    with pytest.raises(NotFoundError):
        export_run(store, blobs, "no-such-run", tmp_path / "exports" / "out", write_reports)


def tamper(path, change):
    lines = [json.loads(line) for line in (path / "series.jsonl").read_text().splitlines()]
    change(lines)
    (path / "series.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _twice(lines):
    lines.append(lines[0])


def _two_count(lines):
    lines.append({**lines[0], "number": 7})


def _unplanned(lines):
    lines[0]["key"] = "f" * 64


def _other_params(lines):
    lines[0]["params"] = {"profile": "forged"}


def _wrong_digest(lines):
    lines[0]["artifacts"][0]["digest"] = "0" * 64


def _wrong_size(lines):
    lines[0]["artifacts"][0]["size_bytes"] = 3


def _no_such_file(lines):
    lines[0]["artifacts"][0]["name"] = "absent.bin"


def _huge(lines):
    lines[0]["number"] = 10**30


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_twice, "appears twice"),
        (_two_count, "a second attempt that counts"),
        (_unplanned, "not the planned trial with this key"),
        (_other_params, "not the planned trial with this key"),
        (_wrong_digest, "does not match its digest"),
        (_wrong_size, "its record says 3"),
        (_no_such_file, "No such file"),
        (_huge, "'number': expected `int` <= 9223372036854775807"),
    ],
)
def test_a_folder_that_lies_is_refused_and_leaves_nothing(tmp_path, place, other, change, reason):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    tamper(tmp_path / "out", change)
    with pytest.raises(UsageError, match=reason):
        import_folder(*other, tmp_path / "out")
    assert other[0].runs() == []
    assert not (tmp_path / "other-blobs").exists()


def test_an_artifact_that_is_a_link_is_refused(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    file = next((tmp_path / "out").glob("trials/*/0/artifacts/profile.prof"))
    secret = tmp_path / "secret"
    secret.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(UsageError, match="a link"):
        import_folder(*other, tmp_path / "out")


def test_a_changed_plan_is_refused(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    for change, reason in (
        (lambda trials: trials.pop(), "does not match its digest"),
        (lambda trials: trials.append(trials[0]), "the same key"),
        (lambda trials: trials[1].update(index=40), "not numbered from 0"),
    ):
        copy = json.loads(json.dumps(manifest))
        change(copy["plan"]["trials"])
        path.write_text(json.dumps(copy))
        with pytest.raises(UsageError, match=reason):
            import_folder(*other, tmp_path / "out")


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path, place, other):
    store, blobs, run_id = place
    export_run(store, blobs, run_id, tmp_path / "out", write_reports)

    class Swapping(FolderBlobs):
        def put_file(self, path, name, media_type="application/octet-stream"):
            return self.put_bytes(b"swapped", name, media_type)

    with pytest.raises(UsageError, match="changed while it was read"):
        import_folder(other[0], Swapping(tmp_path / "x"), tmp_path / "out")
    assert other[0].runs() == []


def test_a_task_that_leaves_a_file_named_like_ours_keeps_both(tmp_path, runs, other):
    blobs = open_blobs(tmp_path / "blobs")
    trial = runs.planned(0, {}, subject="org/task", kind="task", agent="oracle")
    files = tuple(
        blobs.put_bytes(name.encode(), name) for name in ("result.json", "logs/result.json", "a b/ü.txt")
    )
    record = runs.attempt(trial, (), reward=1.0, artifacts=files)
    data = runs.of([(trial, [record])])
    with open_store(str(tmp_path / "a.db")) as store:
        store.import_run(data.info, [trial], [(record, True)])
        export_run(store, blobs, data.info.id, tmp_path / "out", write_reports)
    assert import_folder(*other, tmp_path / "out").added
    assert [row.record.artifacts for row in other[0].attempts(data.info.id)] == [files]
