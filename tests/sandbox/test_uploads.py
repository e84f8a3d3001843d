"""Streams of files for sandboxes: packed as they are now, and never writable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.transfer import pack, packed

pytestmark = pytest.mark.anyio


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test.sh").write_text("echo one\n")
    return folder


def content(stream) -> bytes:
    return os.pread(stream.fd, 1 << 20, 0)


def closed(stream) -> bool:
    try:
        os.fstat(stream.fd)
    except OSError:
        return True
    return False


async def test_what_may_change_is_packed_each_time_and_let_go(tests: Path, tmp_path: Path):
    script = tests / "test.sh"
    async with packed([(script, "/in/"), (tests, "/again/")], tmp_path) as (first, second):
        assert (first.target, second.target) == ("/in/test.sh", "/again")
        assert content(second) == b"".join(pack(tests))
    script.write_text("echo two\n")
    async with packed([(script, "/in/other.sh")], tmp_path) as (third,):
        assert b"two" in content(third)
    assert all(map(closed, (first, second, third)))


async def test_nobody_can_change_what_is_being_unpacked(tests: Path, tmp_path: Path):
    async with packed([(tests, "/tests")], tmp_path) as (stream,):
        writable = os.open(f"/proc/self/fd/{stream.fd}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.write(writable, b"forged")
        os.close(writable)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(stream.fd, b"forged")


async def test_a_large_source_is_spooled_and_leaves_nothing(tests: Path, tmp_path: Path):
    (tests / "large").write_bytes(os.urandom(1 << 19))
    async with packed([(tests, "/tests")], tmp_path) as (stream,):
        assert content(stream) == b"".join(pack(tests))
    assert closed(stream)
    assert [each.name for each in tmp_path.iterdir()] == ["tests"]


async def test_what_was_opened_before_an_error_is_let_go(tests: Path, tmp_path: Path):
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    (tests / "large").write_bytes(os.urandom(1 << 19))
    with pytest.raises(SandboxError, match="absolute"):
        async with packed([(tests, "/tests"), (tests, "tests")], tmp_path):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
