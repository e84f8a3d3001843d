"""The warm server: imports one experiment once, then forks lanes. Single-threaded; owned by a controller.

Started as `python -P -m proctor.trial.forkserver FD PARENT_PID`; FD is one end of a socket pair.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import select
import signal
import socket
import sys
import time

from proctor.experiments.base import REGISTRY
from proctor.prctl import become_subreaper, die_with_parent
from proctor.trial.forkserver.lane import Lane
from proctor.trial.forkserver.output import remove_tree
from proctor.trial.forkserver.watch import HungUpError
from proctor.trial.forkserver.wire import receive, send
from proctor.trial.point.values import describe_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from proctor.experiments.base import Registered
    from proctor.trial.forkserver.wire import Message


def main(handle: int, parent: int) -> None:
    """Serve until the controller closes its end or dies."""
    # While foreign code is being imported only the kernel can be relied on to end this process.
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    become_subreaper()
    control = socket.socket(fileno=handle)
    hello = receive(control)
    registered = _prepare(control, hello[0]) if hello else None
    if hello and registered:
        Server(control, registered, hello[0]["scratch"]).serve()


def _prepare(control: socket.socket, hello: Message) -> Registered | None:
    """Import the experiment and what will be needed beside it, then freeze the heap for cheap forks."""
    if hello["path"] is not None:
        sys.path[:] = hello["path"]
    send(control, {"importing": hello["slug"]})
    try:
        registered = _load(hello)
        _preload(hello, registered)
    except BaseException as error:  # noqa: BLE001 - a module may raise anything at all when it is imported
        send(control, {"invalid": describe_failure("import", error)})
        return None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    gc.freeze()
    send(control, {"ready": os.getpid()})
    return registered


def _load(hello: Message) -> Registered:
    """Import the one module that has the experiment, when it is known; else look through all of them.

    Every module that is not loaded makes each fork cheaper.
    """
    from proctor.experiments.importing import make_neighbours_importable

    try:
        _import(hello["module"], hello["file"])
    except BaseException:  # noqa: BLE001 - whatever it is, it comes again below, and is put into words there
        REGISTRY.pop(hello["slug"], None)
    registered = REGISTRY.get(hello["slug"])
    if registered is None:
        from proctor.experiments.discover import find

        registered = find(hello["slug"], hello["sources"])
    make_neighbours_importable(registered)
    return registered


def _import(module: str, file: str) -> None:
    from importlib import import_module

    from proctor.experiments.importing import home_of, import_below

    if module.startswith("proctor.experiments."):
        import_module(module)
    elif file:
        import_below(*home_of(file))


def _preload(hello: Message, registered: Registered) -> None:
    """What every child would otherwise import for itself."""
    for name in hello["preload"]:
        _preload_instrument(name, hello["sources"])
    if _speaks_of(registered, b"_dir"):
        import pathlib  # noqa: F401 - for its side effect of being loaded
    if "numpy" in sys.modules:
        import numpy.random  # noqa: F401 - as above


def _preload_instrument(name: str, sources: list[str]) -> None:
    from proctor.errors import UsageError
    from proctor.instruments.base import find

    try:
        find(name)
    except UsageError:
        # It is registered by another module than the experiment's.
        from proctor.experiments.discover import discover

        discover(sources)


class Server:
    """Forks lanes on request and clears up after those that died."""

    def __init__(self, control: socket.socket, registered: Registered, scratch: str) -> None:
        self.control = control
        self.registered = registered
        self.writes_files = _speaks_of(registered, b"run_dir")
        self.scratch = scratch
        self.lanes: dict[int, int] = {}
        """A descriptor of each lane's process, which tells its end, and its id."""

    def serve(self) -> NoReturn:
        """Until the controller hangs up, however it does."""
        try:
            self._listen()
        except HungUpError:
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._end()
            os._exit(0)

    def _listen(self) -> None:
        signal.signal(signal.SIGTERM, _hang_up)
        die_with_parent(signal.SIGTERM)
        control = self.control.fileno()
        poll = select.poll()
        poll.register(control, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready != control:
                    poll.unregister(ready)
                    self._collect(ready)
                elif (received := receive(self.control)) is None:
                    return
                else:
                    poll.register(self._fork_lane(*received[1]), select.POLLIN)

    def _fork_lane(self, handle: int, stream: int) -> int:
        """Fork a lane; a descriptor that can be read when it has ended."""
        pid = os.fork()
        if pid == 0:
            try:
                self.control.close()
                for each in self.lanes:
                    os.close(each)
                lane = socket.socket(fileno=handle)
                Lane(lane, stream, self.registered, self.scratch, writes_files=self.writes_files).serve()
            finally:
                os._exit(1)
        os.close(handle)
        os.close(stream)
        ended = os.pidfd_open(pid)
        self.lanes[ended] = pid
        return ended

    def _collect(self, ended: int) -> None:
        """Collect a lane that has ended. What it left when it was killed came to us, and ends here."""
        from proctor.processes import kill_below

        os.close(ended)
        os.waitpid(self.lanes.pop(ended), 0)
        kill_below(spare=self.lanes.values())

    def _end(self) -> None:
        """Lanes see the same hang-up and clear up after themselves; what is still there then is killed."""
        deadline = time.monotonic() + 5
        while self.lanes and time.monotonic() < deadline:
            for ended, pid in list(self.lanes.items()):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self.lanes[ended]
            time.sleep(0.001)
        from proctor.processes import kill_below

        kill_below()
        remove_tree(self.scratch)


def _speaks_of(registered: Registered, word: bytes) -> bool:
    """Whether the experiment's source has this word, or cannot be read."""
    try:
        with open(registered.file, "rb") as file:  # noqa: PTH123 - pathlib is not for every fork
            return word in file.read()
    except OSError:
        return True


def _hang_up(_signum: int, _frame: Any) -> NoReturn:
    raise HungUpError


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
