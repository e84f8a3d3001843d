"""Sets on disk: stamps, hashes, bundles, and a check that finds each kind of damage."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proctor.errors import StoreError
from proctor.render.charts.perf import charts
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.artifacts import KINDS, ArtifactSet, claim_set, dump, release, write_set
from proctor.runfolder.perf.check import check_set
from proctor.runfolder.perf.documents import PerfRun
from proctor.runfolder.perf.schema import load_schema

MakeRun = Callable[..., PerfRun]
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def taken(tmp_path: Path, make_run: MakeRun) -> ArtifactSet:
    """A complete set with a bundle."""
    run = make_run(compress=True)
    found = claim_set(tmp_path, AT)
    write_set(found, run, charts(documents.summary(run), documents.metrics(run), documents.series(run)))
    release(found)
    return found


def test_a_set_that_was_just_written_is_in_order(taken: ArtifactSet):
    assert check_set(taken) == []
    assert len(list(taken.folder.iterdir())) == 13


def test_two_runs_of_one_second_get_different_stamps(tmp_path: Path):
    stamps = [claim_set(tmp_path, AT).stamp for _ in range(3)]
    assert stamps == ["20260102T030405Z", "20260102T030406Z", "20260102T030407Z"]


def test_a_stamp_of_a_finished_set_is_never_taken_again(taken: ArtifactSet):
    again = claim_set(taken.folder, AT)
    assert again.stamp == "20260102T030406Z"


def test_stamps_are_in_utc(tmp_path: Path):
    there = AT.astimezone(timezone(timedelta(hours=5)))
    assert claim_set(tmp_path, there).stamp == "20260102T030405Z"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        claim_set(tmp_path / "file", AT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_documents_are_valid_for_any_reader_of_json_schema(taken: ArtifactSet, kind: str):
    schema = dict(load_schema(f"perf-{kind}"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(taken.path(kind).read_text()), schema)


def test_the_same_run_gives_the_same_bundle(tmp_path: Path, make_run: MakeRun):
    run = make_run(compress=True)
    digests = set()
    for name in ("a", "b"):
        found = claim_set(tmp_path / name, AT)
        write_set(found, run, {})
        digests.add(hashlib.sha256(found.bundle.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_rows_stand_on_lines_of_their_own(make_run: MakeRun):
    text = dump(documents.series(make_run())).decode()
    assert sum(line.lstrip().startswith('{"episode":') for line in text.splitlines()) == 8
    assert sum(line.lstrip().startswith('{"at_s":') for line in text.splitlines()) == 20


def damage(
    taken: ArtifactSet, kind: str, change: Callable[[dict[str, Any]], None], *, seal: bool
) -> list[str]:
    """Change a document; `seal`: with its hash mended, as a careful forger would."""
    path = taken.path(kind)
    document = json.loads(path.read_text())
    change(document)
    path.write_bytes(dump(document))
    if seal:
        manifest = json.loads(taken.path("manifest").read_text())
        for entry in manifest["artifact_set"]:
            if entry["name"] == path.name:
                entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
                entry["bytes"] = path.stat().st_size
        taken.path("manifest").write_bytes(dump(manifest))
    return check_set(taken)


def test_a_changed_byte_is_found_by_its_hash(taken: ArtifactSet):
    def change(document: dict[str, Any]) -> None:
        document["run_id"] = "other"

    assert any(
        "is not what the manifest says" in each for each in damage(taken, "metrics", change, seal=False)
    )


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("summary", "episodes", 9, "summary.episodes and rows"),
        ("summary", "success_count", 7, "success_count"),
        ("summary", "failure_count", 1, "failure_count"),
        ("summary", "failure_reasons", {"x": 1}, "failure_reasons"),
        ("summary", "max_wall_clock_s", 0.1, "max_wall_clock_s"),
        ("summary", "system_samples", 3, "system_samples"),
        ("summary", "overhead_s.work", 0.1, "overhead_s.work"),
        ("summary", "telemetry_verbosity.artifact_bytes_total", 1, "artifact_bytes"),
        ("summary", "summary.workers", 9, "workers"),
        ("summary", "growth.latency", "grows", "growth"),
        ("summary", "run_id", "other", "run_id"),
        ("metrics", "groups.0.run_count", 9, "run_count"),
        ("series", "episodes.0.success", False, "failure_count"),
        ("series", "episodes.0.episode_index", 1, "twice"),
        ("manifest", "episodes_run", 5, "episodes_run"),
    ],
)
def test_a_figure_that_disagrees_is_found_even_under_a_mended_hash(
    taken: ArtifactSet, kind: str, path: str, value: Any, message: str
):
    def change(document: Any) -> None:
        *before, last = path.split(".")
        for name in before:
            document = document[int(name) if name.isdigit() else name]
        document[last] = value

    assert any(message in each for each in damage(taken, kind, change, seal=True))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("summary", "episodes", -1),
        ("summary", "unheard_of", 1),
        ("series", "system", None),
        ("metrics", "growth", {}),
        ("manifest", "artifact_set", []),
        ("manifest", "generated_at", "yesterday"),
    ],
)
def test_a_document_of_the_wrong_shape_is_named_with_its_place(
    taken: ArtifactSet, kind: str, path: str, value: Any
):
    found = damage(taken, kind, lambda document: document.update({path: value}), seal=False)
    assert found
    assert all(each.startswith(f"perf-{kind}-") for each in found)


def test_missing_unlisted_and_unreadable_files_are_found(taken: ArtifactSet):
    taken.chart("latency", "svg").unlink()
    (taken.folder / f"perf-extra-{taken.stamp}.json").write_text("{}")
    found = "\n".join(check_set(taken))
    assert "perf-chart-latency" in found
    assert "perf-extra" in found
    taken.path("series").write_text("{")
    assert "not valid JSON" in check_set(taken)[0]


def test_a_bundle_with_other_content_is_found(taken: ArtifactSet):
    with zipfile.ZipFile(taken.bundle, "w") as archive:
        archive.writestr(taken.path("summary").name, "{}")
    found = "\n".join(check_set(taken))
    assert "contains other files" in found
    assert "differs from the file beside it" in found
    taken.bundle.write_bytes(b"no zip")
    assert "cannot be read" in "\n".join(check_set(taken))


def test_a_manifest_that_forgets_a_document_or_the_bundle_is_found(taken: ArtifactSet):
    def forget(document: dict[str, Any]) -> None:
        kept = [each for each in document["artifact_set"] if each["kind"] not in {"bundle", "metrics"}]
        document["artifact_set"] = kept

    found = "\n".join(damage(taken, "manifest", forget, seal=False))
    assert "does not list perf-metrics" in found
    assert "'compress' and the listed bundle do not match" in found


def test_the_footprint_is_counted_again_on_disk(taken: ArtifactSet, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "a").write_bytes(b"x")
    assert any("run_artifacts.total_bytes is 9000" in each for each in check_set(taken, run_root=run))
