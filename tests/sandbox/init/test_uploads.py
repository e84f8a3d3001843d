"""Streams of files for sandboxes: packed once where the source does not change, and never writable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.transfer import Uploads, pack

pytestmark = pytest.mark.anyio


@pytest.fixture
def uploads(tmp_path: Path):
    made = Uploads(tmp_path)
    yield made
    made.close()


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


async def test_a_fixed_source_is_packed_once_for_all_who_ask(uploads: Uploads, tests: Path):
    first, second = await uploads.streams([(tests, "/tests"), (tests, "/again/")])
    assert (first.fd, first.target, second.target) == (second.fd, "/tests", "/again")
    assert content(first) == b"".join(pack(tests))
    uploads.give_back([first, second])
    assert content(first) == b"".join(pack(tests))
    uploads.close()
    assert closed(first)


async def test_a_source_that_was_replaced_is_packed_anew(uploads: Uploads, tests: Path):
    (before,) = await uploads.streams([(tests, "/tests")])
    tests.rename(tests.with_name("old"))
    tests.mkdir()
    (tests / "test.sh").write_text("echo two\n")
    (after,) = await uploads.streams([(tests, "/tests")])
    assert b"one" in content(before)
    assert b"two" in content(after)


async def test_what_may_change_is_packed_each_time_and_let_go(uploads: Uploads, tests: Path):
    script = tests / "test.sh"
    first = await uploads.stream(script, "/in/")
    assert first.target == "/in/test.sh"
    script.write_text("echo two\n")
    second = await uploads.stream(script, "/in/other.sh")
    assert b"two" in content(second)
    uploads.give_back([first, second])
    assert closed(first)
    assert closed(second)


async def test_nobody_can_change_what_others_will_get(uploads: Uploads, tests: Path):
    (stream,) = await uploads.streams([(tests, "/tests")])
    writable = os.open(f"/proc/self/fd/{stream.fd}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.write(writable, b"forged")
    os.close(writable)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(stream.fd, b"forged")


async def test_a_large_source_is_spooled_and_not_kept(uploads: Uploads, tests: Path, tmp_path: Path):
    (tests / "large").write_bytes(os.urandom(1 << 19))
    (stream,) = await uploads.streams([(tests, "/tests")])
    assert content(stream) == b"".join(pack(tests))
    uploads.give_back([stream])
    assert closed(stream)
    assert [each.name for each in tmp_path.iterdir()] == ["tests"]


async def test_what_was_opened_before_an_error_is_let_go(uploads: Uploads, tests: Path):
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    (tests / "large").write_bytes(os.urandom(1 << 19))
    with pytest.raises(SandboxError, match="absolute"):
        await uploads.streams([(tests, "/tests"), (tests, "tests")])
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
