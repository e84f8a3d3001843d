"""What a slot took: both clocks, children included, and how long its threads and children waited for a CPU.

The worker loads this file by its path, before anything of the user's, and it imports next to nothing. The
kernel forgets how long a thread or a child waited for a CPU when it ends, so `watch` looks just before.
"""

from __future__ import annotations

import _thread
import os
import resource
import sys
import time
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_ALONE = 3
"""Links of /proc/self/task of a process with one thread."""
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_SCHEDSTAT = "/proc/{}/schedstat"

_ended: dict[int, int] = {}
"""How long threads and children that ended in this slot had waited for a CPU, in ns."""


def watch() -> None:
    """Note how long each thread and each child waited for a CPU when it ends; called once, at the start."""
    for name in ("wait", "waitpid", "wait3", "wait4"):
        setattr(os, name, _noting(getattr(os, name), name))
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread, name):
            setattr(_thread, name, _accompanied(getattr(_thread, name)))
    threading = sys.modules.get("threading")
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            setattr(threading, name, getattr(_thread, name[1:]))


def _noting(wait: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same call; a child that has ended is looked at before it is collected."""
    takes_pid = name in {"waitpid", "wait4"}
    takes_options = name != "wait"

    def waiting(*given: Any, **named: Any) -> Any:
        values = [*given, *named.values()]
        pid = values[0] if takes_pid and values else -1
        options = values[-1] if takes_options and values else 0
        if isinstance(pid, int) and isinstance(options, int) and not options & ~os.WNOHANG:
            _look_at(pid, options)
        return wait(*given, **named)

    return waiting


def _look_at(pid: int, options: int) -> None:
    kind, which = (os.P_PID, pid) if pid > 0 else (os.P_ALL, 0) if pid == -1 else (os.P_PGID, -pid)
    try:
        state = os.waitid(kind, which, os.WEXITED | os.WNOWAIT | options)
        if state is not None:
            _ended[state.si_pid] = _schedstat(state.si_pid)[1]
    except OSError:
        return  # the call itself will say what is wrong


def _accompanied(start: Callable[..., Any]) -> Callable[..., Any]:
    """The same call; the new thread notes at its end how long it had waited."""

    def starting(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        def running(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            finally:
                _ended[_thread.get_native_id()] = _schedstat("thread-self")[1]

        return start(running, *given, **named)

    return starting


def _schedstat(task: object) -> tuple[int, int]:
    """Nanoseconds a task had a CPU, and waited for one; zeros when the kernel does not say."""
    try:
        fd = os.open(_SCHEDSTAT.format(task), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        ran, waited, _ = os.read(fd, 64).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return 0, 0
    finally:
        os.close(fd)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        return False
    return True


def _children(pid: object) -> Iterator[int]:
    """Processes that a process has started and that have not been collected, and theirs."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                for child in map(int, file.read().split()):
                    yield child
                    yield from _children(child)
    except (OSError, ValueError):
        return


def _living(pid: int) -> Iterator[tuple[int, int, int]]:
    """Of each thread of a process: its number, how long it ran and waited."""
    try:
        tasks = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (OSError, ValueError):
        return
    for task in tasks:
        yield task, *_schedstat(f"{pid}/task/{task}")


def _collected_ns(pid: int) -> int:
    """CPU time of what a child has itself started and collected."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[13]) + int(fields[14])) * _TICK_NS
    except (OSError, IndexError, ValueError):
        return 0


class Clocks:
    """Both clocks and the kernel's counters around one slot."""

    def __init__(self) -> None:
        self._me = os.getpid()
        try:
            self._schedstat = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._schedstat = -1

    def slot(
        self,
        call: Callable[[Any], Any],
        context: Any,
        loops: int,
        spins: int = 0,
        lead: int = 0,
    ) -> list[int]:
        """Time `loops` calls together: a row of model.lockstep.SLOT_FIELDS.

        The `lead` calls before them are not timed: they fill the caches that the other side had emptied.
        """
        turns = repeat(None, loops)
        for _ in repeat(None, lead):
            call(context)
        _ended.clear()
        before, live = self._tasks()
        usage, collected = _usage()
        cpu = time.process_time_ns()
        wall = time.perf_counter_ns()
        for _ in turns:
            call(context)
        if spins:
            spin(spins)
        wall = time.perf_counter_ns() - wall
        cpu = time.process_time_ns() - cpu
        after, later = self._tasks()
        usage_after, collected_after = _usage()
        waits = {**after, **_ended}
        # A child that lived before the slot and was collected in it counts with what it did meanwhile.
        children = max(0, collected_after - collected + later - live)
        return [
            wall,
            cpu + children,
            usage_after.ru_nivcsw - usage.ru_nivcsw,
            usage_after.ru_nvcsw - usage.ru_nvcsw,
            usage_after.ru_minflt + usage_after.ru_majflt - usage.ru_minflt - usage.ru_majflt,
            sum(max(0, waited - before.get(task, 0)) for task, waited in waits.items()),
            children,
        ]

    def _tasks(self) -> tuple[dict[int, int], int]:
        """How long each living thread and child has waited for a CPU; CPU time of the living children."""
        waited = {self._me: self._waited_ns()}
        if _threads() > _ALONE:
            waited |= {task: wait for task, _, wait in _living(self._me) if task != self._me}
        ran_ns = 0
        if _has_children():
            for child in _children(self._me):
                ran_ns += _collected_ns(child)
                for task, ran, wait in _living(child):
                    ran_ns += ran
                    waited[task] = wait
        return waited, ran_ns

    def _waited_ns(self) -> int:
        if self._schedstat < 0:
            return 0
        try:
            return int(os.pread(self._schedstat, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0


class PreparedClocks(Clocks):
    """Slots that begin with an untimed preparation. No call goes before them: it would use that up."""

    def __init__(self, prepare: Callable[[Any], Any]) -> None:
        super().__init__()
        self.prepare = prepare

    def slot(
        self,
        call: Callable[[Any], Any],
        context: Any,
        loops: int,
        spins: int = 0,
        lead: int = 0,  # noqa: ARG002 - as the docstring says
    ) -> list[int]:
        """As of any clocks."""
        self.prepare(context)
        return super().slot(call, context, loops, spins)


def clocks_for(experiment: Any) -> Clocks:
    """What times the slots of an experiment."""
    prepare = getattr(experiment, "before_slot", None)
    return PreparedClocks(prepare) if prepare else Clocks()


def _threads() -> int:
    try:
        return os.stat("/proc/self/task").st_nlink
    except OSError:
        return 0


def _usage() -> tuple[resource.struct_rusage, int]:
    """The counters of this process, and the CPU time of the children it has collected."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    collected_ns = round((children.ru_utime + children.ru_stime) * 1e9)
    return resource.getrusage(resource.RUSAGE_SELF), collected_ns


def spin(turns: int) -> None:
    """Work that costs the same each time, for deliberate slowness."""
    total = 0
    for each in repeat(1, turns):
        total += each
