"""Folders are made with those above them, and apart from each other where a disk knows how."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from proctor import disk
from proctor.disk import make_folders, spread


def test_a_folder_is_marked_where_the_disk_knows_the_mark(tmp_path):
    spread(tmp_path)
    (tmp_path / "below").mkdir()
    if not shutil.which("lsattr"):
        pytest.skip("no lsattr to look with")
    said = subprocess.run(["lsattr", "-d", str(tmp_path)], capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip(f"this file system has no such marks: {said.stderr.strip()}")
    assert "T" in said.stdout.split()[0]


def test_what_cannot_be_marked_is_left_alone(tmp_path):
    spread(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    spread(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_is_made_with_those_above_it_and_once(tmp_path):
    for _ in range(2):
        make_folders(f"{tmp_path}/a/b/c")
        make_folders(f"{tmp_path}/a/b/d".encode())
    assert sorted(each.name for each in (tmp_path / "a/b").iterdir()) == ["c", "d"]


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError):
        make_folders(f"{tmp_path}/file")
    with pytest.raises(NotADirectoryError):
        make_folders(f"{tmp_path}/file/below")


class TestPlaces:
    @pytest.fixture
    def clock(self, monkeypatch):
        """What each next look at the CPU clock adds, in µs; 50 when nothing else was said."""
        took_us: list[int] = []
        now = [0]

        def thread_time_ns() -> int:
            now[0] += 1000 * (took_us.pop(0) if took_us else 50)
            return now[0]

        monkeypatch.setattr(disk.time, "thread_time_ns", thread_time_ns)
        return took_us

    @pytest.fixture
    def made_in(self, monkeypatch):
        parents: list[str] = []
        mkdir = os.mkdir

        def note(path, *rest) -> None:
            if "/." in str(path):
                parents.append(Path(path).parent.name)
            mkdir(path, *rest)

        monkeypatch.setattr(os, "mkdir", note)
        return parents

    def make(self, top: Path, count: int) -> None:
        places = disk.Places(str(top))
        for number in range(count):
            places.make(f"{top}/task/{number}")
        assert [each.name for each in top.iterdir()] == ["task"]
        made = list((top / "task").iterdir())
        assert sorted(int(each.name) for each in made) == list(range(count))
        assert not any(list(each.iterdir()) for each in made)

    def test_each_folder_is_made_in_the_one_before(self, tmp_path, clock, made_in):
        self.make(tmp_path / "top", 4)
        assert made_in == ["top", "0", "1", "2"]

    def test_where_it_takes_long_another_place_is_looked_for(self, tmp_path, clock, made_in):
        clock += [0, 50, 0, 900]
        self.make(tmp_path / "top", 4)
        assert made_in == ["top", "0", "top", "2"]

    def test_a_search_passes_over_slow_places(self, tmp_path, clock, made_in):
        clock += [0, 900, 0, 800]
        self.make(tmp_path / "top", 2)
        assert made_in == ["top", "top", "top", "0"]

    def test_where_every_place_is_slow_it_is_left_alone_for_a_while(self, tmp_path, clock, made_in):
        clock += [0, 900] * disk._TRIES
        self.make(tmp_path / "top", disk._REST + 2)
        assert made_in == ["top"] * (disk._TRIES + 1)

    def test_what_is_there_stays(self, tmp_path):
        (tmp_path / "top/task/0").mkdir(parents=True)
        (tmp_path / "top/task/0/file").write_text("x")
        places = disk.Places(str(tmp_path / "top"))
        places.make(f"{tmp_path}/top/task/0")
        assert (tmp_path / "top/task/0/file").read_text() == "x"

    def test_a_folder_that_is_gone_does_not_matter(self, tmp_path):
        places = disk.Places(str(tmp_path))
        places.make(f"{tmp_path}/task/0")
        (tmp_path / "task/0").rmdir()
        places.make(f"{tmp_path}/task/1")
        places.make(f"{tmp_path}/other/0")
        assert (tmp_path / "task/1").is_dir()
        assert (tmp_path / "other/0").is_dir()

    def test_a_place_that_cannot_be_is_an_error(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(OSError, match="file"):
            disk.Places(str(tmp_path)).make(f"{tmp_path}/file/0")
