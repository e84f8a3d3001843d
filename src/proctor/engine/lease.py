"""Which worker holds a trial, and whether it is still alive."""

from __future__ import annotations

import os
import secrets
import socket

from proctor import owner
from proctor.processes import own_start_ticks


def worker_id() -> str:
    """A name for this process that no other can have: host, pid, its start, whose pids these are, a nonce.

    The fourth part stands for the boot of the machine and the PID namespace, in which alone the pid means
    something.
    """
    facts = (socket.gethostname(), os.getpid(), own_start_ticks(), owner.place_id(), secrets.token_hex(3))
    return ":".join(map(str, facts))


def is_dead(worker: str) -> bool:
    """True only when certain: the worker's process id can be seen here, and its process is gone."""
    host, *facts = worker.split(":")
    if len(facts) == 4:
        return owner.process_lives("-".join(facts[:3])) is False
    # Earlier versions did not say whose process ids they meant: within one host it was taken for granted.
    return (
        len(facts) == 3 and host == socket.gethostname() and owner.process_lives("-".join(facts[:2])) is False
    )


def in_words(worker: str) -> str:
    """A worker as people look for it."""
    host, *facts = worker.split(":")
    return f"process {facts[0]} on {host}" if facts else f"worker {worker}"
