"""Output is kept from both ends and never grows in memory."""

from __future__ import annotations

import os

import pytest

from proctor.trial.forkserver.output import HEAD_BYTES, TAIL_BYTES, Output


@pytest.fixture
def output():
    made = Output("stdout")
    yield made
    made.close()


def test_little_output_is_kept_whole(output):
    os.write(output.writer, b"hello\n")
    output.drain()
    assert (output.text(), output.total_bytes) == (b"hello\n", 6)
    assert output.end_of(3) == "lo\n"


def test_of_much_output_both_ends_are_kept_with_the_gap_named(output):
    data = bytes(range(256)) * 256 * 20
    for at in range(0, len(data), 60_000):
        os.write(output.writer, data[at : at + 60_000])
        output.drain()
    text = output.text()
    assert text.startswith(data[:HEAD_BYTES])
    assert text.endswith(data[-TAIL_BYTES:])
    assert f"[… {len(data) - HEAD_BYTES - TAIL_BYTES} bytes left out …]".encode() in text
    assert len(output._tail) <= 2 * TAIL_BYTES + 65_536


def test_reading_does_not_wait_for_whoever_holds_the_pipe(output):
    assert output.read()
    output.drain()
    assert output.total_bytes == 0


def test_the_end_is_noticed(output):
    os.close(output.writer)
    assert not output.read()


def test_a_reset_begins_anew(output):
    os.write(output.writer, b"one")
    output.drain()
    output.reset()
    assert (output.text(), output.total_bytes) == (b"", 0)
