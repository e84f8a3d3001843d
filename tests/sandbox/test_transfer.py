"""Streams of files: what is packed, and what comes out of a stream, honest or not."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import SandboxError
from proctor.sandbox import transfer
from proctor.sandbox.transfer import _ENTRY, Unpacker, Unpacking, pack


def entry(kind, path=b"", data=b"", mode=0o644, size=None):
    return _ENTRY.pack(kind, mode, 0, len(data) if size is None else size, len(path)) + path + data


END = entry(b"E")


def test_a_packed_folder_unpacks_to_the_same_files(tmp_path):
    source = tmp_path / "in"
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/c").write_bytes(b"x" * 200_000)
    (source / "empty").write_bytes(b"")
    (source / "run").write_text("#!")
    (source / "run").chmod(0o755)
    unpacker = Unpacker(tmp_path / "out", 1 << 20)
    for piece in pack(source):
        unpacker.feed(piece)
    assert unpacker.complete
    assert unpacker.result().files == 3
    assert (tmp_path / "out/a/b/c").read_bytes() == b"x" * 200_000
    assert os.access(tmp_path / "out/run", os.X_OK)
    assert (tmp_path / "out/empty").read_bytes() == b""


def test_links_are_packed_as_links_and_special_files_are_not(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    (source / "link").symlink_to("/etc/shadow")
    os.mkfifo(source / "fifo")
    stream = b"".join(pack(source))
    assert b"/etc/shadow" in stream
    assert b"fifo" not in stream
    with pytest.raises(SandboxError, match="neither a file nor a folder"):
        list(pack(source / "link"))


def test_a_file_alone_becomes_the_target(tmp_path):
    (tmp_path / "f").write_text("one")
    unpacker = Unpacker(tmp_path / "g", 100)
    for piece in pack(tmp_path / "f"):
        unpacker.feed(piece)
    assert (tmp_path / "g").read_text() == "one"


def test_a_stream_may_come_byte_by_byte(tmp_path):
    unpacker = Unpacker(tmp_path / "out", 100)
    for byte in entry(b"D") + entry(b"F", b"d/f", b"data") + entry(b"X", b"gone") + END:
        unpacker.feed(bytes([byte]))
    assert unpacker.complete
    assert (tmp_path / "out/d/f").read_bytes() == b"data"
    assert unpacker.result().dropped == ("gone",)


def test_what_does_not_fit_is_left_out_whole(tmp_path):
    unpacker = Unpacker(tmp_path / "out", 10)
    unpacker.feed(
        entry(b"D")
        + entry(b"F", b"a", b"12345678")
        + entry(b"F", b"b", b"123")
        + entry(b"F", b"c", b"1")
        + END
    )
    found = unpacker.result()
    assert (found.files, found.bytes, found.dropped) == (2, 9, ("b",))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "c"]


def test_modes_lose_what_could_hurt(tmp_path):
    unpacker = Unpacker(tmp_path / "out", 10)
    unpacker.feed(entry(b"D") + entry(b"F", b"s", b"x", mode=0o6777) + END)
    assert (tmp_path / "out/s").stat().st_mode & 0o7777 == 0o744


def test_a_link_that_stands_at_the_target_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/f").symlink_to(tmp_path / "precious")
    unpacker = Unpacker(tmp_path / "out", 10)
    unpacker.feed(entry(b"F", b"f", b"x") + END)
    assert unpacker.error
    assert (tmp_path / "precious").read_text() == "precious"


def test_after_an_error_the_rest_is_ignored(tmp_path):
    unpacker = Unpacker(tmp_path / "out", 10)
    unpacker.feed(entry(b"?", b"x"))
    assert unpacker.error
    unpacker.feed(entry(b"F", b"f", b"x") + END)
    assert not unpacker.complete
    unpacker.close()


def test_too_many_entries_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_MOST_FILES", 3)
    unpacker = Unpacker(tmp_path / "out", 100)
    unpacker.feed(b"".join(entry(b"F", b"%d" % n, b"x") for n in range(9)) + END)
    assert unpacker.complete
    assert (unpacker.result().files, unpacker.result().dropped_count) == (3, 6)
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_names_that_this_machine_cannot_have_are_left_out(tmp_path):
    deep = b"/".join([b"n" * 254] * 16)
    unpacker = Unpacker(tmp_path / "out", 100)
    unpacker.feed(entry(b"D", deep) + entry(b"F", deep + b"/f", b"x") + entry(b"F", b"a" * 300, b"y"))
    unpacker.feed(entry(b"F", b"fine", b"z") + END)
    assert unpacker.complete
    assert (unpacker.result().files, unpacker.result().dropped_count) == (1, 3)
    assert (tmp_path / "out" / "fine").read_bytes() == b"z"


@pytest.mark.needs("root")
def test_a_machine_that_cannot_write_is_told_from_a_stream_that_is_wrong(tmp_path):
    unpacker = Unpacker(Path("/proc/nothing/here"), 100)
    unpacker.feed(entry(b"F", b"f", b"x"))
    assert unpacker.error
    assert unpacker.by_host
    unpacker = Unpacker(tmp_path / "out", 100)
    unpacker.feed(entry(b"?", b"f"))
    assert unpacker.error
    assert not unpacker.by_host


def test_too_long_paths_are_refused(tmp_path):
    unpacker = Unpacker(tmp_path / "out", 10)
    unpacker.feed(_ENTRY.pack(b"F", 0, 0, 1, 5000))
    assert "too long" in unpacker.error


@given(st.binary(max_size=300))
def test_no_stream_writes_outside_or_crashes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    unpacker = Unpacker(folder / "out", 1000)
    unpacker.feed(data)
    unpacker.close()
    assert {path.name for path in folder.iterdir()} <= {"out"}


@given(
    st.lists(
        st.tuples(st.sampled_from([b"F", b"D", b"X", b"L"]), st.binary(max_size=12), st.binary(max_size=9))
    )
)
def test_no_name_leads_outside(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("any")
    unpacker = Unpacker(folder / "out", 50)
    unpacker.feed(b"".join(entry(kind, path, data) for kind, path, data in entries))
    unpacker.close()
    assert {path.name for path in folder.iterdir()} <= {"out"}


@pytest.mark.anyio
async def test_thousands_of_files_are_not_made_on_the_event_loop(tmp_path, monkeypatch):
    made, usual = set(), Unpacker._entry

    def noted(self, *args):
        made.add(threading.get_ident())
        usual(self, *args)

    monkeypatch.setattr(Unpacker, "_entry", noted)
    unpacker = Unpacker(tmp_path / "out", 1 << 20)
    unpacking = Unpacking(unpacker)
    data = b"".join(entry(b"F", f"file{number}".encode()) for number in range(3000)) + END
    for at in range(0, len(data), 1 << 14):
        unpacking.take(data[at : at + (1 << 14)])
    await unpacking.end()
    assert (unpacker.result().files, unpacker.complete, unpacker.error) == (3000, True, "")
    assert threading.get_ident() not in made


@pytest.mark.anyio
async def test_what_comes_faster_than_it_is_written_is_given_up(tmp_path, monkeypatch):
    release, feed = threading.Event(), Unpacker.feed

    def stuck(self, data):
        release.wait()
        feed(self, data)

    monkeypatch.setattr(Unpacker, "feed", stuck)
    unpacker = Unpacker(tmp_path / "out", 1 << 30)
    unpacking = Unpacking(unpacker)
    for _ in range(70):
        unpacking.take(bytes(1 << 20))
    release.set()
    await unpacking.end()
    assert "could not be written" in unpacker.error
