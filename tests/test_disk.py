"""Folders are made with those above them, and apart from each other where a disk knows how."""

from __future__ import annotations

import shutil
import subprocess

import pytest

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
