"""How many trials at a time, where that may change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proctor.runs.capacity import Capacity, Memory, Scale, used_share
from proctor.sandbox.choose import BACKENDS
from proctor.settings import Settings


@pytest.mark.parametrize(
    ("parallel", "running", "busy", "then"),
    [(2, 2, 0.5, 4), (8, 8, 0.1, 10), (8, 8, 0.95, 4), (8, 1, 0.1, 4), (2, 0, 0.1, 2), (8, 6, 0.5, 8)],
)
def test_a_worker_grows_while_it_is_full_and_the_machine_has_room(parallel, running, busy, then):
    assert Scale(2, 10).next(parallel, running, busy) == then


def test_the_machine_says_what_it_offers():
    found = Capacity.here(Settings(sandbox="fake"), ("gpu",))
    assert "fake" in found.offers.backends
    assert {"gpu", "fake"} <= set(found.offers.labels)
    assert any(each.startswith("arch=") for each in found.offers.labels)
    assert found.offers.memory_mb > 0
    assert used_share() >= 0
    said = found.described("w", 3, running=1, run="", draining=False)
    assert (said.parallel, said.running, said.labels) == (3, 1, found.offers.labels)
    assert said.place == found.offers.place != ""


def test_why_the_first_choice_of_a_sandbox_does_not_work_here_is_told(monkeypatch):
    def only(name: str) -> None:
        for each, kind in BACKENDS.items():
            why = "" if each == name else "it is missing"
            monkeypatch.setitem(BACKENDS, each, replace(kind, obstacle=lambda why=why: why))

    only("podman")
    assert Capacity.here(Settings(), ()).obstacles == ("bubblewrap: it is missing",)
    only("bubblewrap")
    assert Capacity.here(Settings(), ()).obstacles == ()


@pytest.mark.parametrize(
    ("kind", "file", "line"),
    [("cgroup2", "memory.max", "0::"), ("cgroup", "memory.limit_in_bytes", "4:memory:")],
)
def test_memory_is_that_of_the_tightest_control_group_and_else_of_the_machine(
    tmp_path: Path, kind, file, line
):
    groups = {
        "slice": "max",
        "slice/one": str(64 << 20),
        "slice/one/in": str(99 << 20),
        "slice/two": str(1 << 60),
    }
    for name, limit in groups.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(limit)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup {tmp_path} {kind} rw,memory 0 0\n")

    def memory(path: str) -> Memory:
        (tmp_path / "own").write_text(f"{line}{path}\n")
        return Memory.here(mounts, tmp_path / "own")

    machine = Memory.here(tmp_path / "none", tmp_path / "none")
    limited = memory("/slice/one")
    assert limited.limit_bytes == 64 << 20
    assert memory("/slice/one/in") == limited, "what is around it limits it, and is shared"
    assert memory("/slice/two") == memory("/gone") == memory("/slice") == machine
    assert machine.place != limited.place
