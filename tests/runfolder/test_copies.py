"""Artifacts that come after their rows: after a kill it is known how far they are, and none comes twice."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import BinaryIO

import pytest

from proctor.errors import StoreError, UsageError
from proctor.model.plan import Plan
from proctor.render.reporters import write_reports
from proctor.runfolder import copies
from proctor.runfolder.copies import COPYING
from proctor.runfolder.read import RunData
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME, Series, read_series
from proctor.runfolder.transfer import import_folder
from proctor.runfolder.write import RunFolder
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store


class FarBlobs(FolderBlobs):
    """Blobs that are far away: it is known what was fetched, and they can be cut off."""

    remote = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetched: list[str] = []
        self.cut_off = False

    def copy_to(self, digest: str, target: BinaryIO) -> None:
        if self.cut_off:
            target.write(b"a part")
            raise StoreError("the blobs do not answer")
        self.fetched.append(digest)
        super().copy_to(digest, target)


@pytest.fixture
def blobs(tmp_path: Path) -> FarBlobs:
    return FarBlobs(tmp_path / "blobs")


@pytest.fixture
def data(runs, blobs: FarBlobs) -> RunData:
    """Six trials with two artifacts each."""
    pairs = []
    for number in range(6):
        trial = runs.planned(number, {"n": number})
        kept = tuple(blobs.put_bytes(f"{name} {number}".encode(), name) for name in ("log", "deep/profile"))
        pairs.append((trial, [runs.attempt(trial, artifacts=kept)]))
    return runs.of(pairs)


def opened(path: Path, data: RunData, blobs: FarBlobs) -> RunFolder:
    folder = RunFolder(path, blobs=blobs)
    folder.begin(data.info, Plan(trials=tuple(trial.planned for trial in data.trials)))
    return folder


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def missing(path: Path) -> int:
    """How many artifacts of the rows in a folder are not there."""
    return sum(
        not (path / relative).is_file()
        for row in read_series(path)
        for relative in artifact_paths(row.trial, row.record)
    )


@pytest.mark.parametrize("again", [False, True])
def test_a_look_while_rows_are_being_written_forgets_none_of_their_files(
    tmp_path, data, blobs, monkeypatch, again
):
    folder = opened(tmp_path / "run", data, blobs)
    append = Series.append

    def look_first(series: Series, lines: bytes) -> None:
        folder.copy_some()
        append(series, lines)

    monkeypatch.setattr(Series, "append", look_first)
    rows = list(data.rows())
    if again:  # in another order than the data has them: the series is written again
        folder._write_again(iter(rows))
    else:
        folder.append_all(rows)
    folder.copy_rest()
    assert missing(tmp_path / "run") == 0
    assert not (tmp_path / "run" / COPYING).exists()


def test_rows_come_first_and_the_folder_says_so_until_their_files_are_there(tmp_path, data, blobs):
    folder = opened(tmp_path / "run", data, blobs)
    folder.append_all(list(data.rows()))
    assert missing(tmp_path / "run") == 12
    assert (tmp_path / "run" / COPYING).is_dir()
    while folder.copy_some():
        pass
    assert missing(tmp_path / "run") == 0
    assert not (tmp_path / "run" / COPYING).exists()
    folder.finish(data, write_reports)
    assert len(blobs.fetched) == 12


def test_after_a_kill_only_rows_after_the_mark_are_looked_at_and_the_end_is_the_same(
    tmp_path, data, blobs, monkeypatch
):
    monkeypatch.setattr(copies, "_PAGE", 2)
    whole = opened(tmp_path / "whole", data, blobs)
    whole.append_all(list(data.rows()))
    whole.finish(data, write_reports)
    killed = opened(tmp_path / "killed", data, blobs)
    killed.append_all(list(data.rows()))
    assert killed.copy_some()
    (tmp_path / "killed" / COPYING / "0123456789abcdef").write_bytes(b"was on its way")
    blobs.fetched.clear()
    for path in artifact_paths(data.trials[0].planned, data.trials[0].counted):
        (tmp_path / "killed" / path).unlink()
    again = RunFolder(tmp_path / "killed", blobs=blobs)
    again.finish(data, write_reports)
    assert len(blobs.fetched) == 8, "of the rows before the mark nothing is looked for"
    found, wanted = contents(tmp_path / "killed"), contents(tmp_path / "whole")
    gone = set(artifact_paths(data.trials[0].planned, data.trials[0].counted))
    same = {name for name in wanted if not name.endswith((".html", ".md"))}
    assert {name: found.get(name) for name in same - gone} == {name: wanted[name] for name in same - gone}
    assert found.keys() == wanted.keys() - gone


@pytest.mark.parametrize("mark", ["", "nonsense", "17", "99999999", "-1", None])
def test_a_mark_that_no_row_begins_at_is_not_trusted(tmp_path, data, blobs, mark):
    folder = opened(tmp_path / "run", data, blobs)
    folder.append_all(list(data.rows()))
    folder.close()
    if mark is None:
        (tmp_path / "run" / COPYING / "series_bytes").unlink()
    else:
        (tmp_path / "run" / COPYING / "series_bytes").write_text(mark)
    RunFolder(tmp_path / "run", blobs=blobs).finish(data, write_reports)
    assert missing(tmp_path / "run") == 0
    assert not (tmp_path / "run" / COPYING).exists()


def test_blobs_that_are_cut_off_leave_nothing_half_written_and_are_copied_when_they_are_back(
    tmp_path, data, blobs
):
    folder = opened(tmp_path / "run", data, blobs)
    blobs.cut_off = True
    folder.append_all(list(data.rows()))
    for _ in range(2):
        with pytest.raises(StoreError, match="do not answer"):
            folder.copy_some()
    assert missing(tmp_path / "run") == 12
    assert [each.name for each in (tmp_path / "run" / COPYING).iterdir()] == ["series_bytes"]
    with pytest.raises(StoreError, match="do not answer"):
        folder.finish(data, write_reports)
    assert (tmp_path / "run" / "summary.json").is_file(), "reports do not wait for artifacts"
    blobs.cut_off = False
    folder.finish(data, write_reports)
    assert missing(tmp_path / "run") == 0
    assert not (tmp_path / "run" / COPYING).exists()


def test_a_blob_that_is_gone_holds_up_no_other_and_is_an_error_at_the_end(tmp_path, data, blobs):
    lost = data.trials[1].counted.artifacts[0]
    kept = blobs.path(lost.digest).read_bytes()
    blobs.path(lost.digest).unlink()
    folder = opened(tmp_path / "run", data, blobs)
    folder.append_all(list(data.rows()))
    while folder.copy_some():
        pass
    assert missing(tmp_path / "run") == 2, "the attempt with the lost blob, whose second file comes after it"
    with pytest.raises(StoreError, match=f"the blob {lost.digest} is not in the store"):
        folder.finish(data, write_reports)
    assert (tmp_path / "run" / COPYING).is_dir()
    blobs.put_bytes(kept, "back")
    RunFolder(tmp_path / "run", blobs=blobs).finish(data, write_reports)
    assert missing(tmp_path / "run") == 0


def test_a_series_that_is_written_again_gets_all_of_its_files(tmp_path, data, blobs):
    folder = opened(tmp_path / "run", data, blobs)
    rows = list(data.rows())
    folder.append_all([*rows[3:], rows[0]])
    while folder.copy_some():
        pass
    folder.close()
    with (tmp_path / "run" / NAME).open("ab") as series:
        series.write(b"not a row\n")
    for path in artifact_paths(rows[0].trial, rows[0].record):
        (tmp_path / "run" / path).unlink()
    RunFolder(tmp_path / "run", blobs=blobs).finish(data, write_reports)
    assert missing(tmp_path / "run") == 0
    assert RunData.from_folder(tmp_path / "run").trials == data.trials


def test_a_folder_whose_files_are_still_to_come_is_not_imported(tmp_path, data, blobs):
    folder = opened(tmp_path / "run", data, blobs)
    folder.append_all(list(data.rows()))
    folder.close()
    with open_store(str(tmp_path / "store.db")) as store:
        with pytest.raises(UsageError, match="still being copied"):
            import_folder(store, blobs, tmp_path / "run")
        RunFolder(tmp_path / "run", blobs=blobs).finish(data, write_reports)
        assert import_folder(store, blobs, tmp_path / "run").added


@pytest.mark.fault
@pytest.mark.needs("root")
def test_on_a_full_disk_the_row_stays_nothing_is_half_written_and_the_error_says_so(tmp_path, runs, blobs):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        trial = runs.planned()
        artifact = blobs.put_bytes(os.urandom(400_000), "large")
        data = runs.of([(trial, [runs.attempt(trial, artifacts=(artifact,))])])
        folder = opened(small / "run", data, blobs)
        folder.append_all(list(data.rows()))
        with pytest.raises(StoreError, match="no space is left"):
            folder.copy_some()
        assert missing(small / "run") == 1
        assert [each.name for each in (small / "run" / COPYING).iterdir()] == ["series_bytes"]
        subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
        folder.finish(data, write_reports)
        assert missing(small / "run") == 0
    finally:
        subprocess.run(["umount", small], check=True)
