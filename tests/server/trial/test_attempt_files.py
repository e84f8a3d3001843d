"""The files of a running attempt, in whose folder an agent does what it likes meanwhile."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from proctor.server.problem import Problem
from proctor.server.trial.attempt_files import AttemptFiles, _written
from proctor.server.trial.byte_ranges import read_part
from proctor.server.trial.logs import listed_logs, opened_log
from proctor.store.blobs import FolderBlobs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "attempt"
    (found / "logs").mkdir(parents=True)
    (found / "logs/agent.txt").write_text("hello\n")
    (found / "left.txt").write_text("x")
    return found


def files(folder: Path) -> AttemptFiles:
    return AttemptFiles(1, None, folder, FolderBlobs(folder / "no blobs"), dict(_written(folder)))


def removed(path: Path) -> None:
    path.unlink()


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_instead(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def fifo_instead(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = [removed, folder_instead, link_instead, fifo_instead]


@pytest.fixture
def while_listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Callable[[Path], None]], None]:
    """Do something to a path just after its name was read from its folder."""
    scandir = os.scandir

    def arm(path: Path, change: Callable[[Path], None]) -> None:
        class Listing:
            def __init__(self, place: Any = ".") -> None:
                self._found = scandir(place)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                self._found.close()

            def __iter__(self) -> Iterator[os.DirEntry[str]]:
                return self

            def __next__(self) -> os.DirEntry[str]:
                entry = next(self._found)
                if entry.name == path.name and os.path.lexists(path):
                    change(path)
                return entry

            def close(self) -> None:
                self._found.close()

        monkeypatch.setattr(os, "scandir", Listing)

    return arm


def test_a_file_that_is_removed_while_it_is_listed_is_left_out(folder: Path, while_listed):
    (folder / "gone.txt").write_text("x")
    while_listed(folder / "gone.txt", removed)
    assert sorted(files(folder).files) == ["left.txt", "logs/agent.txt"]


def test_a_folder_that_is_swapped_for_a_link_shows_nothing_of_where_it_leads(
    folder: Path, tmp_path: Path, while_listed
):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("x")

    def swap(path: Path) -> None:
        (path / "agent.txt").unlink()
        path.rmdir()
        path.symlink_to(tmp_path / "outside")

    while_listed(folder / "logs", swap)
    assert not [path for path in files(folder).files if "secret" in path]


def test_a_folder_that_vanishes_is_left_out(folder: Path, while_listed):
    (folder / "empty").mkdir()
    while_listed(folder / "empty", Path.rmdir)
    assert sorted(files(folder).files) == ["left.txt", "logs/agent.txt"]


def test_no_folder_at_all_has_no_files(tmp_path: Path):
    assert files(tmp_path / "nowhere").files == {}


def test_a_name_that_is_no_text_does_not_break_the_answer(folder: Path):
    for name in (b"caf\xe9.txt", b"logs/caf\xe9.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")
    found = files(folder)
    assert sorted(found.files) == ["left.txt", "logs/agent.txt"]
    assert msgspec.json.encode(sorted(found.files))
    assert b"agent.txt" in msgspec.json.encode(listed_logs(found))


def test_a_tree_without_end_is_listed_as_far_as_it_is_of_use(folder: Path):
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert sorted(files(folder).files) == ["left.txt", "logs/agent.txt"]
    finally:
        subprocess.run(["rm", "-rf", folder / "d"], check=True)  # Python's own way recurses


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", ["left.txt", "logs/agent.txt"])
def test_a_file_that_became_something_else_after_the_list_is_not_found(folder: Path, change, path: str):
    found = files(folder)
    change(folder / path)
    with pytest.raises(Problem) as caught:
        found.open(path)
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("change", CHANGES)
def test_the_parts_of_a_log_that_went_away_do_not_break_it(folder: Path, change):
    """A long log has its end in two parts, which take turns."""
    for part in ("agent.txt.1", "agent.txt.2"):
        (folder / "logs" / part).write_text(part)
    found = files(folder)
    change(folder / "logs/agent.txt.1")
    assert listed_logs(found)["logs"][0]["name"] == "agent.txt"
    with pytest.raises(Problem), opened_log(found, "agent.txt"):
        pass
    with opened_log(files(folder), "agent.txt") as (log, _):
        assert log.read() == b"hello\nagent.txt.2"


def test_a_range_of_more_digits_than_a_number_has_is_no_range():
    assert read_part(io.BytesIO(b"abc"), 3, wanted=f"bytes=0-{'9' * 5000}").data == b"abc"
