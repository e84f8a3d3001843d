"""Frames arrive whole or not at all, and nothing that was finished is lost with its process."""

from __future__ import annotations

import os
import socket
import time

import pytest

from proctor.trial.forkserver import page as page_module
from proctor.trial.forkserver.page import BACKLOG_BYTES, IDLE, RowsLostError, RowWriter, SharedPage
from proctor.trial.forkserver.wire import Decoder, WireError, encode, receive, send


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def everything(sock: socket.socket) -> list[dict]:
    sock.setblocking(False)
    found, decoder = [], Decoder()
    try:
        while data := sock.recv(1 << 20):
            found += decoder.feed(data)
    except BlockingIOError:
        pass
    return found


def test_a_stream_is_read_whatever_its_pieces():
    data = encode({"a": 1}) + encode({"b": "é"})
    decoder = Decoder()
    found = [message for at in range(len(data)) for message in decoder.feed(data[at : at + 1])]
    assert found == [{"a": 1}, {"b": "é"}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff", "the limit is"),
        (b"\x02\0\0\0{]", "not JSON"),
        (b"\x02\0\0\0[]", "is list, not a mapping"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_read(data, words):
    with pytest.raises(WireError, match=words):
        list(Decoder().feed(data))


def test_a_stream_has_a_limit_in_all():
    decoder = Decoder(limit_bytes=30)
    list(decoder.feed(encode({"a": 1})))
    with pytest.raises(WireError, match="more bytes"):
        list(decoder.feed(encode({"a": "x" * 30})))


def test_descriptors_travel_with_their_frame(pair, tmp_path):
    ours, theirs = pair
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    send(ours, {"here": "it is"}, [file])
    send(ours, {"and": "more"})
    message, (copy,) = receive(theirs)
    assert message == {"here": "it is"}
    os.write(copy, b"written")
    assert receive(theirs) == ({"and": "more"}, [])
    assert (tmp_path / "file").read_bytes() == b"written"
    os.close(file)
    os.close(copy)


def test_a_large_frame_is_sent_whole(pair):
    import threading

    ours, theirs = pair
    message = {"text": "x" * 3_000_000}
    sender = threading.Thread(target=send, args=(ours, message))
    sender.start()
    assert receive(theirs) == (message, [])
    sender.join()


@pytest.mark.parametrize("part", [b"", b"\x05", b"\x05\0\0\0", b"\x05\0\0\0{}"])
def test_a_peer_that_goes_in_the_middle_is_no_message(pair, part):
    ours, theirs = pair
    ours.sendall(part)
    ours.close()
    assert receive(theirs) is None


def test_an_absurd_header_is_refused(pair):
    ours, theirs = pair
    ours.sendall(b"\xff\xff\xff\x7f")
    with pytest.raises(WireError):
        receive(theirs)


def test_a_mark_says_where_and_since_when():
    page = SharedPage()
    before = time.monotonic_ns()
    page.mark(4, 17)
    mark = page.read_mark()
    assert (mark.phase, mark.iteration) == (4, 17)
    assert before <= mark.since_ns <= time.monotonic_ns()
    page.clear()
    assert page.read_mark().phase == IDLE


def test_a_negative_iteration_is_a_warm_up():
    page = SharedPage()
    page.mark(3, -2)
    assert page.read_mark().iteration == -2


def test_a_row_waits_in_memory_that_outlives_its_process(pair):
    ours, theirs = pair
    page = SharedPage()
    pid = os.fork()
    if pid == 0:
        writer = RowWriter(theirs.fileno(), page)
        writer.row({"row": 1})
        writer.row({"row": 2})
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert everything(ours) == []
    assert list(Decoder().feed(page.backlog)) == [{"row": 1}, {"row": 2}]


def test_rows_are_sent_after_a_while_when_the_page_is_full_and_before_a_report(pair, monkeypatch):
    ours, theirs = pair
    page = SharedPage()
    writer = RowWriter(theirs.fileno(), page)
    monkeypatch.setattr(page_module, "FLUSH_EVERY_NS", 1 << 62)
    writer.row({"row": 1})
    assert everything(ours) == []
    monkeypatch.setattr(page_module, "FLUSH_EVERY_NS", -1)
    writer.row({"row": 2})
    assert everything(ours) == [{"row": 1}, {"row": 2}]
    monkeypatch.setattr(page_module, "FLUSH_EVERY_NS", 1 << 62)
    writer.row({"row": "x" * (BACKLOG_BYTES - 100)})
    writer.row({"row": "y" * 200})
    assert [len(each["row"]) for each in everything(ours)] == [BACKLOG_BYTES - 100]
    writer.send({"report": 1})
    assert everything(ours) == [{"row": "y" * 200}, {"report": 1}]
    assert page.backlog == b""


def test_a_row_larger_than_the_page_goes_past_it(pair):
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    writer = RowWriter(theirs.fileno(), SharedPage())
    writer.row({"row": "small"})
    writer.row({"row": "x" * 100_000})
    assert [len(each["row"]) for each in everything(ours)] == [5, 100_000]


def test_a_lost_socket_keeps_all_in_the_page_until_that_is_full(pair, tmp_path):
    _, theirs = pair
    page = SharedPage()
    writer = RowWriter(theirs.fileno(), page)
    number = theirs.fileno()
    other = os.open(tmp_path / "not ours", os.O_CREAT | os.O_WRONLY)
    saved = os.dup(number)
    os.dup2(other, number)
    writer.send({"row": 1})
    writer.send({"row": 2})
    assert writer.lost
    assert list(Decoder().feed(page.backlog)) == [{"row": 1}, {"row": 2}]
    with pytest.raises(RowsLostError):
        writer.row({"row": "x" * BACKLOG_BYTES})
    with pytest.raises(RowsLostError):
        writer.send({"report": "after a gap nothing can be trusted"})
    assert (tmp_path / "not ours").read_bytes() == b""
    os.dup2(saved, number)
    os.close(saved)
    os.close(other)


def test_a_closed_socket_counts_as_lost(pair):
    _, theirs = pair
    writer = RowWriter(theirs.fileno(), SharedPage())
    theirs.close()
    writer.send({"row": 1})
    assert writer.lost


def test_a_forked_copy_ends_without_a_word(pair):
    ours, theirs = pair
    writer = RowWriter(theirs.fileno(), SharedPage())
    pid = os.fork()
    if pid == 0:
        writer.end_if_forked()
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert everything(ours) == []
