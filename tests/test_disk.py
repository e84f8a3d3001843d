"""Folders are made with those above them, and apart from each other where a disk knows how."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from proctor import disk
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


def test_all_is_written_however_little_the_disk_takes_at_a_time(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    for number, data in enumerate((b"", b"x" * 100, bytearray(b"y" * 101), memoryview(b"z" * 6))):
        with disk.opened(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) as fd:
            disk.write_all(fd, data)
        assert (tmp_path / str(number)).read_bytes() == bytes(data)


WRITES_ITSELF = {
    "disk.py": "the function itself",
    "sandbox/unpack.py": "a program that imports nothing of Proctor",
    "sandbox/init/line.py": "a pipe, as much of it as fits",
    "sandbox/init/streams.py": "a few bytes into an empty pipe",
    "agents/episodes/inside/wire.py": "a program that imports nothing of Proctor",
    "runs/perf/guard.py": "a few bytes into a pipe",
    "trial/forkserver/page.py": "looks before each write whether the descriptor is still its own",
    "trial/forkserver/pinned.py": "a file in memory",
    "trial/forkserver/zygote.py": "pipes of a process that imports next to nothing",
    "trial/lockstep/worker.py": "one byte into a pipe",
}


def test_nobody_else_calls_write_and_forgets_what_was_not_taken():
    source = Path(disk.__file__).parent
    calls = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"write", "pwrite", "writev", "sendfile", "copy_file_range", "splice"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    assert calls == set(WRITES_ITSELF), "use proctor.disk.write_all"
