"""Forks find the interpreter's code where the parent had it, and nothing of it has changed."""

from __future__ import annotations

import os
import subprocess
import sys

from proctor.trial.forkserver import inherit

COUNT_FAULTS = """
import os, resource, sys
from proctor.trial.forkserver.inherit import inherit_code

def work():
    return sorted(str(number) for number in range(50)), {}.get("x"), b"a".hex()

def faults():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        work()
        os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(reader, 100))

work()
before = min(faults() for _ in range(3))
inherit_code()
work()
print(before, min(faults() for _ in range(3)))
"""


def test_a_fork_faults_less_often_for_code():
    said = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, said.stdout.split())
    assert after < before


def test_the_code_is_what_it_was():
    def content() -> list[bytes]:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        try:
            return [os.pread(memory, 4096, start) for start in inherit._code()]
        finally:
            os.close(memory)

    before = content()
    inherit.inherit_code()
    assert before
    assert content() == before


def test_memory_that_cannot_be_opened_is_left_alone(monkeypatch):
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refused)
    inherit.inherit_code()


def test_a_write_that_is_refused_changes_nothing(monkeypatch):
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pwrite", refused)
    inherit.inherit_code()
