"""Find, pin, count and end processes, whole trees of them; and the environment of those that are started.

Standard library only: every layer may use it, also where importing psutil would cost more than the command.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GONE = frozenset("ZXx")
_MOST_FILES = 1 << 20
_ALWAYS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_NETWORK = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
OF_GIT = (
    "GIT_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS", "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "GCM_*",
)  # fmt: skip
"""What git and its credential helpers read."""
OF_PYTHON = ("PYTHON*", "VIRTUAL_ENV", "CONDA_*")
"""What decides which packages an interpreter sees."""


def host_environment(
    *also: str,
    network: bool = False,
    environ: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a program that Proctor starts on this machine: what it needs, and never a key.

    `also` are names of more variables to hand on; one that ends in * is a beginning. With `network` it gets
    proxies and certificates.
    """
    given = os.environ if environ is None else environ
    names = (*_ALWAYS, *(_NETWORK if network else ()), *also)
    plain = {name for name in names if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    found = {name: value for name, value in given.items() if name in plain or name.startswith(beginnings)}
    return {"PATH": os.defpath, **found, **(extra or {})}


def full_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables of this process: for the user's own code, run as they would, and for Proctor itself."""
    return {**os.environ, **(extra or {})}


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table. With `start_ticks` a process is never taken for a later one."""

    pid: int
    parent: int
    session: int
    state: str
    start_ticks: int
    cpu_s: float
    resident_bytes: int

    @property
    def gone(self) -> bool:
        """Dead, whether or not someone has collected it."""
        return self.state in _GONE


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far, as the kernel counts it."""

    user_s: float
    system_s: float
    peak_rss_bytes: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    read_bytes: int
    write_bytes: int

    @property
    def cpu_s(self) -> float:
        """User and system time."""
        return self.user_s + self.system_s


def read_process(pid: int) -> Process | None:
    """The process with this id now, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - called for every process there is
            line = file.read()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0].decode(),
        start_ticks=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is none, or only its zombie."""
    process = read_process(pid)
    return None if process is None or process.gone else process.start_ticks


def own_start_ticks() -> int:
    """When this process began, also where /proc shows another PID namespace than its own."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - as above
        line = file.read()
    return int(line[line.rindex(b")") + 2 :].split()[19])


def all_processes() -> Iterator[Process]:
    """Every process that this one may see."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only, and quickly
        if name.isdigit() and (process := read_process(int(name))):
            yield process


def descendants(pid: int, *, spare: Collection[int] = ()) -> list[Process]:
    """All living processes below `pid`; `spare` and what is below those is left out."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [pid]
    while queue:
        below = [each for each in children.get(queue.pop(), ()) if each.pid not in spare]
        queue += [each.pid for each in below]
        found += [each for each in below if not each.gone]
    return found


def marked(entry: str) -> list[Process]:
    """Living processes except this one that started with `NAME=value`, whatever their parent is now."""
    wanted = entry.encode()
    found = []
    for process in all_processes():
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:  # noqa: PTH123 - as above
                entries = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in entries and process.pid != os.getpid() and not process.gone:
            found.append(process)
    return found


def send_signal(process: Process, signum: int) -> bool:
    """Signal exactly this process; False when it has gone, even if its id belongs to another now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def kill_tree(pid: int, *, within_s: float = 5.0) -> int:
    """End a process, everything below it and its session; how many were ended.

    Each is stopped before any is killed: a stopped process cannot fork out of the sweep.
    """
    root = read_process(pid)
    if root is None:
        return 0
    deadline = time.monotonic() + within_s
    stopped: dict[int, Process] = {}
    while time.monotonic() < deadline:
        new = [each for each in _tree(root) if each.pid not in stopped]
        if not new:
            break
        for each in new:
            send_signal(each, signal.SIGSTOP)
            stopped[each.pid] = each
    kill_all(stopped.values())
    return len(stopped)


def _tree(root: Process) -> list[Process]:
    below = descendants(root.pid)
    known = {each.pid for each in below} | {root.pid, os.getpid()}
    mates = [
        each
        for each in (all_processes() if root.session == root.pid else ())
        if each.session == root.session and each.pid not in known and not each.gone
    ]
    return [root, *below, *mates]


def kill_all(processes: Iterable[Process]) -> int:
    """Kill each of these; how many were still there."""
    return sum(send_signal(each, signal.SIGKILL) for each in processes)


def kill_below(*, spare: Collection[int] = (), within_s: float = 5.0) -> tuple[int, int]:
    """As a subreaper, end every descendant but `spare` and collect them: how many ended, how many would not.

    What loses its parent comes to us, so this goes on until nothing is left, however it tried to slip away.
    """
    deadline = time.monotonic() + within_s
    ended: set[tuple[int, int]] = set()
    while True:
        living = descendants(os.getpid(), spare=spare)
        for each in living:
            send_signal(each, signal.SIGSTOP)
        for each in living:
            send_signal(each, signal.SIGKILL)
            ended.add((each.pid, each.start_ticks))
        left = collect(spare=spare)
        if not living and not left:
            return len(ended), 0
        if time.monotonic() > deadline:
            return len(ended), len(living)
        time.sleep(0.0005)


def collect(*, spare: Collection[int] = ()) -> bool:
    """Collect dead children, save those in `spare`; whether children besides those remain.

    `spare` must be collected by whoever asked to spare it, or its exit status would be lost.
    """
    if not spare:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return True
        return False
    mine = [each for each in all_processes() if each.parent == os.getpid() and each.pid not in spare]
    remain = False
    for each in mine:
        with suppress(ChildProcessError):
            remain |= os.waitpid(each.pid, os.WNOHANG)[0] == 0
    return remain


@contextmanager
def without_collections() -> Iterator[None]:
    """Without Python's search for cycles: it finds none among what is being read, and costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use, in order."""
    return tuple(sorted(os.sched_getaffinity(0)))


def allow_open_files() -> int:
    """Raise the limit of open files as far as this user may; how many are allowed then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return most
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def from_rusage(raw: Sequence[Any]) -> Usage:
    """The kernel's own structure, or its plain tuple, with units in the names."""
    return Usage(
        user_s=raw[0],
        system_s=raw[1],
        peak_rss_bytes=raw[2] * 1024,
        minor_faults=raw[6],
        major_faults=raw[7],
        voluntary_switches=raw[14],
        involuntary_switches=raw[15],
        read_bytes=raw[9] * 512,
        write_bytes=raw[10] * 512,
    )


def describe_status(status: int) -> str:
    """How a process ended, from its wait status, in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    return f"signal {-code} ({name})"
