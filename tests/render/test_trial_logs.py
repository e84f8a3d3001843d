"""Following a log through its head, its parts and the moment they become one."""

from __future__ import annotations

import os

import pytest

from proctor.render.trial_logs import Follower, Log, logs_in, read
from proctor.trial.progress import LogFile
from proctor.trial.redact import Redactor


@pytest.fixture
def log(tmp_path):
    (tmp_path / "logs").mkdir()
    return LogFile(tmp_path / "logs/agent.txt", Redactor({}), head_bytes=10, tail_bytes=20)


def new(follower):
    return b"".join(follower.more())


def test_what_is_written_is_seen_once_in_the_head_in_the_parts_and_after_the_end(log):
    follower = Follower(Log("agent.txt", log.path))
    assert new(follower) == b""
    log.write(b"01234")
    assert new(follower) == b"01234"
    log.write(b"56789abc")
    assert new(follower) == b"56789abc"
    log.write(b"d" * 17 + b"e" * 5)  # the first part is full, the second begins
    assert new(follower) == b"d" * 17 + b"e" * 5
    log.write(b"f" * 5)
    log.close()
    assert new(follower) == b"f" * 5
    assert new(follower) == b""
    follower.close()


def test_a_log_that_was_closed_before_the_first_look_is_read_whole(log):
    log.write(b"x" * 35)
    log.close()
    follower = Follower(Log("agent.txt", log.path))
    assert new(follower) == b"x" * 35
    follower.close()


def test_output_that_came_too_fast_is_said_to_be_missing(log):
    follower = Follower(Log("agent.txt", log.path))
    log.write(b"a" * 15)
    new(follower)
    log.write(b"b" * 60)
    assert b"faster than it could be shown" in new(follower)
    follower.close()


def test_parts_of_a_growing_log_are_counted_and_not_listed(log, tmp_path):
    log.write(b"a" * 35)
    (found,) = logs_in(tmp_path)
    assert (found.name, found.size_bytes) == ("agent.txt", 35)


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"a\nb", b"a\nb\n", b"\n\n\n", b"a\n\nb\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_the_last_lines_are_those_that_splitting_would_give(tmp_path, text, lines):
    path = tmp_path / "a.txt"
    path.write_bytes(text)
    expected = b"".join(text.splitlines(keepends=True)[-lines:]) if lines else b""
    assert b"".join(read(Log("a.txt", path), tail=lines)) == expected


def test_the_last_lines_of_a_long_file_are_found_across_blocks(tmp_path):
    path = tmp_path / "a.txt"
    text = b"".join(b"%d %s\n" % (number, b"x" * 70_000) for number in range(5))
    path.write_bytes(text)
    assert b"".join(read(Log("a.txt", path), tail=3)) == b"".join(text.splitlines(keepends=True)[-3:])


def test_what_is_not_a_plain_file_is_no_log(tmp_path):
    import os

    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs/pipe")
    (tmp_path / "logs/link").symlink_to("/etc/hostname")
    assert logs_in(tmp_path) == []
    with pytest.raises(OSError, match="not a plain file"):
        list(read(Log("pipe", tmp_path / "logs/pipe")))


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def link(path):
    path.unlink()
    path.symlink_to("/etc/passwd")


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [fifo, link, folder])
def test_a_log_that_becomes_something_else_before_it_is_followed_shows_nothing(tmp_path, change):
    path = tmp_path / "agent.txt"
    path.write_text("x")
    follower = Follower(Log("agent.txt", path))
    change(path)
    assert new(follower) == b""
    assert Log("agent.txt", path).size_bytes == 0
    follower.close()


def test_logs_behind_a_link_are_none(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("x")
    (tmp_path / "attempt").mkdir()
    (tmp_path / "attempt/logs").symlink_to(tmp_path / "outside")
    assert logs_in(tmp_path / "attempt") == []
    with pytest.raises(OSError, match="logs"):
        list(read(Log("secret.txt", tmp_path / "attempt/logs/secret.txt")))
