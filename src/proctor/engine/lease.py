"""Who holds a trial, and whether that worker still lives."""

from __future__ import annotations

import os
import secrets
import socket

from proctor.processes import start_ticks


def worker_id() -> str:
    """A name for this process that no later one can have: host, pid, its start time, a nonce."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{start_ticks(pid)}:{secrets.token_hex(3)}"


def is_dead(worker: str) -> bool:
    """True only when certain: the worker was on this host and its process is gone."""
    host, _, rest = worker.partition(":")
    pid, _, rest = rest.partition(":")
    ticks = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return str(start_ticks(int(pid))) != ticks
