"""One run of a whole command: both clocks from its start to its end, its children included."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from proctor.errors import CommandFailedError, UsageError
from proctor.model.lockstep import UNPADDED, ProcessLayout, Slot
from proctor.processes import full_environment, kill_tree
from proctor.trial.lockstep.process import padded

SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as a person wrote it, and the surroundings in which it runs."""

    text: str
    name: str
    shell: bool = True
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of the caller's own."""
    stdin: str = os.devnull
    output: str = os.devnull
    """A file, or empty: the caller's own output."""
    ignore_failure: bool = False

    def words(self) -> list[str]:
        """What is executed."""
        if self.shell:
            return [SHELL, "-c", self.text]
        try:
            words = shlex.split(self.text)
        except ValueError as error:
            raise UsageError(f"command '{self.text}' cannot be split into words: {error}") from None
        if not words:
            raise UsageError("a command is empty")
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Slot):
    """What one run took; its children count, but of waiting for a CPU only its first process is known."""

    user_ns: int
    system_ns: int
    exit_code: int
    """Below zero: the signal that ended it."""
    peak_rss_bytes: int
    layout: ProcessLayout = UNPADDED


def execute(
    command: Command, *, cpu: int | None = None, doing: str = "run", layout: ProcessLayout = UNPADDED
) -> Execution:
    """Run the command to its end. Whatever interrupts us ends the command with everything it started."""
    with _streams(command) as (stdin, output), _pinned(cpu):
        began = time.perf_counter_ns()
        process = _start(command, stdin, output, layout)
        try:
            # Not collected yet: its entry in /proc still says how long it waited for a CPU.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            wall_ns = time.perf_counter_ns() - began
            waited_ns = _waited_ns(process.pid)
        except BaseException:
            kill_tree(process.pid)
            raise
        finally:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    _check(command, process.returncode, doing)
    user_ns, system_ns = round(usage.ru_utime * 1e9), round(usage.ru_stime * 1e9)
    return Execution(
        wall_ns=wall_ns,
        cpu_ns=user_ns + system_ns,
        user_ns=user_ns,
        system_ns=system_ns,
        exit_code=process.returncode,
        peak_rss_bytes=usage.ru_maxrss * 1024,
        involuntary=usage.ru_nivcsw,
        voluntary=usage.ru_nvcsw,
        faults=usage.ru_minflt + usage.ru_majflt,
        waited_ns=waited_ns,
        layout=layout,
    )


def _start(
    command: Command, stdin: IO[bytes], output: IO[bytes] | None, layout: ProcessLayout
) -> subprocess.Popen[bytes]:
    words = command.words()
    try:
        return subprocess.Popen(
            words,
            stdin=stdin,
            stdout=output,
            stderr=output,
            cwd=command.cwd,
            env=padded(full_environment(command.env), layout),
            start_new_session=True,
        )
    except OSError as error:
        what = command.cwd if error.filename == command.cwd else words[0]
        raise UsageError(f"command '{command.name}': {what}: {error.strerror}") from None


@contextmanager
def _streams(command: Command) -> Iterator[tuple[IO[bytes], IO[bytes] | None]]:
    """Where it reads from and writes to."""
    try:
        with Path(command.stdin).open("rb") as stdin:
            if not command.output:
                yield stdin, None
                return
            with Path(command.output).open("ab") as output:
                yield stdin, output
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None


@contextmanager
def _pinned(cpu: int | None) -> Iterator[None]:
    """A child inherits the CPUs of its parent, so this process is pinned for as long as it waits."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _waited_ns(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _check(command: Command, code: int, doing: str) -> None:
    if not code or command.ignore_failure:
        return
    how = f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    why = "; the shell did not find the program" if command.shell and code == 127 else ""
    raise CommandFailedError(
        f"command '{command.name}' {how} in {doing}{why}. "
        "See what it prints with --output inherit, or time it nevertheless with --ignore-failure"
    )
