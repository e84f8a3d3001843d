"""Pinned pages are copied by a fork and not shared; memory is what it would be without."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import struct

import pytest

from proctor.trial.forkserver import pinned
from proctor.trial.forkserver.pinned import pin_what_it_writes

PAGES = 64


@pytest.fixture
def memory(monkeypatch):
    # The process of the tests may hold more than is looked through in a zygote.
    monkeypatch.setattr(pinned, "_MOST_BYTES", 16 << 30)
    made = mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(made), mmap.PAGESIZE):
        made[at] = 1
    yield made
    made.close()


def address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def in_a_fork(work) -> bytes:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    try:
        return os.read(reader, 1000)
    finally:
        os.close(reader)


def write_all(memory: mmap.mmap) -> bytes:
    """Write to each page: how many faults that took, and what the first byte is then."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] += 1
    return struct.pack("ii", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, memory[0])


def test_the_pages_that_a_rehearsal_wrote_are_found_and_no_others_of_its_piece(memory):
    start = address(memory)

    def rehearsal() -> None:
        memory[3 * mmap.PAGESIZE] = 9
        memory[7 * mmap.PAGESIZE] = 9

    pages = pinned.written_by(rehearsal)
    assert pages, "the rehearsal could not be looked at"
    found = {(page - start) // mmap.PAGESIZE for page in pages}
    assert {at for at in found if 0 <= at < PAGES} == {3, 7}
    assert memory[3 * mmap.PAGESIZE] == 1


def test_a_rehearsal_that_fails_finds_nothing():
    assert pinned.written_by(lambda: 1 / 0) == []


def test_a_fork_writes_to_pinned_pages_without_a_fault_and_alone(memory):
    start = address(memory)
    plain, _ = struct.unpack("ii", in_a_fork(lambda: write_all(memory)))
    ring = pinned.pin([start + at * mmap.PAGESIZE for at in range(PAGES)])
    if ring is None:
        pytest.skip("this kernel, or whoever confines us, allows no io_uring")
    faults, seen = struct.unpack("ii", in_a_fork(lambda: write_all(memory)))
    os.close(ring)
    assert plain >= PAGES
    assert faults < PAGES / 2
    assert (seen, memory[0]) == (2, 1)


@pytest.mark.parametrize(
    "pages", [[], [4096] * (pinned.MOST_PAGES + 1), [4096]], ids=["none", "many", "unmapped"]
)
def test_what_cannot_be_pinned_is_left_alone(pages):
    assert pinned.pin(pages) is None


def test_without_the_kernels_tables_nothing_is_pinned(monkeypatch):
    def refuse() -> list[tuple[int, int]]:
        raise PermissionError

    monkeypatch.setattr(pinned, "_private_memory", refuse)
    assert pin_what_it_writes() is None


def test_a_rehearsal_pins_some_pages_and_gives_its_descriptors_back():
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    ring = pin_what_it_writes()
    if ring is not None:
        os.close(ring)
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
