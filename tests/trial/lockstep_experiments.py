"""Experiments that the lockstep tests run in worker processes; each misbehaves when it is told to."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from proctor import Experiment, register_experiment


@register_experiment("well_behaved")
class WellBehaved(Experiment):
    """A little arithmetic."""

    def __init__(self, n: int = 50):
        self.n = n

    def execute_once(self, context):
        return {"total": sum(range(self.n))}


@register_experiment("sleeps")
class Sleeps(Experiment):
    """Waits more than it computes."""

    def __init__(self, pause_s: float = 0.001):
        self.pause_s = pause_s

    def execute_once(self, context):
        time.sleep(self.pause_s)
        return {}


@register_experiment("starts_a_child")
class StartsAChild(Experiment):
    """Waits for a process that computes."""

    def execute_once(self, context):
        subprocess.run(["/bin/sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"], check=True)
        return {}


@register_experiment("two_threads")
class TwoThreads(Experiment):
    """Computes in two threads that can run at the same time."""

    def work(self):
        for _ in range(30):
            hashlib.sha256(bytes(100_000)).digest()

    def execute_once(self, context):
        both = [threading.Thread(target=self.work) for _ in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        return {}


@register_experiment("misbehaves")
class Misbehaves(Experiment):
    """Does something rough in a phase of its life, in the call of the given number."""

    def __init__(self, phase: str = "execute_once", how: str = "raise", call: int = 0, note: str = ""):
        self.phase, self.how, self.call, self.note = phase, how, call, note
        self.calls = 0

    def setup(self, context):
        self.act("setup")

    def execute_once(self, context):
        if self.calls >= self.call:
            self.act("execute_once")
        self.calls += 1
        return {}

    def teardown(self, context):
        if self.note:
            Path(self.note).write_text("torn down")
        self.act("teardown")

    def act(self, phase):
        if phase != self.phase:
            return
        if self.how == "raise":
            raise ValueError("out of order")
        if self.how == "exit":
            sys.stderr.write("going now\n")
            sys.stderr.flush()
            os._exit(3)
        if self.how == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.how == "leave a child":
            subprocess.Popen(["sleep", "1000"])
        if self.how == "hang":
            if self.note:
                Path(self.note).write_text(str(os.getpid()))
            time.sleep(1000)
