"""Folders are made with those above them, and apart from each other where a disk knows how."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess

import pytest

from proctor.disk import is_lack_of_space, make_folders, nearly_full, spread


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


def test_a_disk_is_nearly_full_by_what_is_left_of_it(tmp_path, monkeypatch):
    assert not nearly_full(tmp_path / "none")
    real = os.statvfs(tmp_path)
    for free_bytes, total_bytes, expected in (
        (1 << 40, 1 << 41, False),
        (1 << 29, 1 << 41, False),
        (1 << 27, 1 << 41, True),
        (20 << 20, 256 << 20, False),  # a small disk may have little left
        (2 << 20, 256 << 20, True),
    ):
        values = list(real)
        values[1], values[2], values[4] = 1, total_bytes, free_bytes
        found = os.statvfs_result(values)
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: found)
        assert nearly_full(tmp_path) is expected, (free_bytes, total_bytes)


def test_a_lack_of_space_is_known_also_as_the_cause_of_another_error():
    full = OSError(errno.ENOSPC, "No space left on device")
    caused = RuntimeError("a blob cannot be written")
    caused.__cause__ = full
    assert is_lack_of_space(full)
    assert is_lack_of_space(caused)
    assert not is_lack_of_space(OSError(errno.EACCES, "Permission denied"))
