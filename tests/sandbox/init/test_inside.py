"""File operations of the keeper without a compiler, run here; the rest of it runs in real sandboxes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from proctor.sandbox.init import inside
from proctor.sandbox.transfer import Unpacker, pack

RUN = "import sys; from proctor.sandbox.init.inside import _builtin; _builtin(sys.argv[1:])"


def builtin(*argv, stdin=b""):
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.flush()
        command = [sys.executable, "-c", RUN, *map(str, argv)]
        return subprocess.run(command, stdin=file, capture_output=True, check=False)


def test_receive_and_send_are_inverse(tmp_path):
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    (source / "sub/f").write_bytes(b"x" * 100_000)
    (source / "link").symlink_to("sub/f")
    (tmp_path / "mid/sub").mkdir(parents=True)
    (tmp_path / "mid/sub/f").mkdir()
    assert builtin("receive", tmp_path / "mid", stdin=b"".join(pack(source))).returncode == 0
    assert (tmp_path / "mid/link").readlink().as_posix() == "sub/f"
    unpacker = Unpacker(tmp_path / "out", 1 << 20)
    unpacker.feed(builtin("send", tmp_path / "mid", 1 << 20).stdout)
    assert unpacker.complete
    assert (tmp_path / "out/sub/f").read_bytes() == b"x" * 100_000
    assert unpacker.result().dropped == ("link",)


def test_a_broken_stream_and_a_missing_source_are_reported(tmp_path):
    broken = builtin("receive", tmp_path / "x", stdin=b"123")
    assert broken.returncode == 127
    assert b"ended early" in broken.stderr
    assert builtin("send", tmp_path / "missing", 10).returncode == 127


def test_special_files_and_big_ones_are_left_out(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "big").write_bytes(b"x" * 50)
    unpacker = Unpacker(tmp_path / "out", 1 << 20)
    unpacker.feed(builtin("send", tmp_path, 10).stdout)
    assert set(unpacker.result().dropped) == {"fifo", "big"}


def test_fresh_replaces_whatever_stands_there(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    (tmp_path / "full/x").mkdir(parents=True)
    paths = [tmp_path / "link/a", tmp_path / "file/b", tmp_path / "full", tmp_path / "real2"]
    (tmp_path / "real2").write_text("")
    assert builtin("fresh", *paths).returncode == 0
    assert all(path.is_dir() and not list(path.iterdir()) for path in paths)
    assert not (tmp_path / "link").is_symlink()
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("root", (0, 0, [0], "/root")),
        ("", (0, 0, [0], "/root")),
        ("0:0", (0, 0, [0], "/root")),
        ("12:34", (12, 34, [34], "/")),
        ("ann", (5, 6, [6, 70], "/h")),
        ("5", (5, 6, [6, 70], "/h")),
        ("ann:staff", (5, 70, [70], "/h")),
    ],
)
def test_users_are_found_in_the_image_s_own_files(monkeypatch, wanted, expected):
    rows = {
        "/etc/passwd": [["root", "x", "0", "0", "", "/root"], ["ann", "x", "5", "6", "", "/h", ""]],
        "/etc/group": [["root", "x", "0"], ["staff", "x", "70", "bob,ann"]],
    }
    monkeypatch.setattr(inside, "_lines", lambda path, fields: rows[path])
    assert inside._identity(wanted) == expected


@pytest.mark.parametrize("wanted", ["nobody-here", "ann:no-group", "70000", "-1"])
def test_unknown_users_end_the_command(monkeypatch, wanted):
    def fail(what, error=None):
        raise LookupError(what)

    monkeypatch.setattr(inside, "fail", fail)
    monkeypatch.setattr(inside, "_lines", lambda path, fields: [])
    with pytest.raises(LookupError, match="no user or group"):
        inside._identity(wanted)


def test_lines_that_are_no_accounts_are_skipped(tmp_path):
    (tmp_path / "passwd").write_bytes(b"a:x:1:1::/\nbroken\nb:x:99999999:1::/\nc:x:y:1::/\n\xff:x:2:2::/\n")
    assert [row[2] for row in inside._lines(str(tmp_path / "passwd"), 6)] == ["1", "2"]
    assert inside._lines(str(tmp_path / "missing"), 6) == []
