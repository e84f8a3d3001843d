"""Folders made in a spread one are placed apart; where a disk knows nothing of that, nothing happens."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from proctor.disk import spread


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
