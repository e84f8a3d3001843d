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
from pathlib import Path
from typing import Any, NoReturn

from proctor.errors import UsageError
from proctor.experiments.base import Registered
from proctor.processes import become_subreaper, die_with_parent, kill_below
from proctor.trial.forkserver.lane import HungUpError, Lane, remove_tree
from proctor.trial.forkserver.rehearse import rehearse
from proctor.trial.forkserver.wire import Message, receive, send
from proctor.trial.point.failure import describe_failure


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
    sys.path[:] = hello["path"]
    send(control, {"importing": hello["slug"]})
    began = time.monotonic()
    try:
        registered = _load(hello)
        _preload(hello["preload"], hello["sources"])
    except BaseException as error:  # noqa: BLE001 - a module may raise anything at all when it is imported
        send(control, {"invalid": describe_failure("import", error)})
        return None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    rehearse()
    gc.collect()
    gc.freeze()
    send(control, {"ready": os.getpid(), "import_s": time.monotonic() - began})
    return registered


def _load(hello: Message) -> Registered:
    """Import the one module that has the experiment, when it is known; else look through all of them.

    Every module that is not loaded makes each fork cheaper.
    """
    from proctor.experiments.load import load_file, load_module

    slug, module, file = hello["slug"], hello["module"], hello["file"]
    if module.startswith("proctor.experiments."):
        found = load_module(module)[:1]
    else:
        found = [load_file(Path(file))] if file else []
    for registered in (each for loaded in found for each in loaded.registered):
        if registered.slug == slug:
            return registered
    from proctor.experiments.discover import find

    return find(slug, hello["sources"])


def _preload(instruments: list[str], sources: list[str]) -> None:
    """What every child would otherwise import for itself."""
    import proctor.spec.params  # noqa: F401 - for its side effect of being loaded
    from proctor.instruments.base import find

    for name in instruments:
        try:
            find(name)
        except UsageError:
            # It is registered by another module than the experiment's.
            from proctor.experiments.discover import discover

            discover(sources)
    if "psutil" in instruments:
        import psutil  # noqa: F401
    if "numpy" in sys.modules:
        import numpy.random  # noqa: F401


class Server:
    """Forks lanes on request and clears up after those that died."""

    def __init__(self, control: socket.socket, registered: Registered, scratch: str) -> None:
        self.control = control
        self.registered = registered
        self.writes_files = _speaks_of_run_dir(registered)
        self.scratch = scratch
        self.lanes: set[int] = set()
        self.woken, self._wake = os.pipe()

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
        for handle in (self.woken, self._wake):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, _hang_up)
        die_with_parent(signal.SIGTERM)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self.woken in ready:
                os.read(self.woken, 4096)
                self._collect()
            if self.control.fileno() in ready:
                received = receive(self.control)
                if received is None:
                    return
                self._fork_lane(received[1][0])

    def _fork_lane(self, handle: int) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.control.close()
                os.close(self.woken)
                os.close(self._wake)
                lane = socket.socket(fileno=handle)
                Lane(lane, self.registered, self.scratch, writes_files=self.writes_files).serve()
            finally:
                os._exit(1)
        os.close(handle)
        self.lanes.add(pid)

    def _collect(self) -> None:
        """Collect lanes that ended. What a lane left when it was killed came to us, and ends here."""
        died = {pid for pid in self.lanes if os.waitpid(pid, os.WNOHANG)[0]}
        self.lanes -= died
        if died:
            kill_below(spare=self.lanes)

    def _end(self) -> None:
        """Lanes see the same hang-up and clear up after themselves; what is still there then is killed."""
        deadline = time.monotonic() + 5
        while self.lanes and time.monotonic() < deadline:
            self.lanes -= {pid for pid in self.lanes if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(0.001)
        kill_below()
        remove_tree(self.scratch)


def _speaks_of_run_dir(registered: Registered) -> bool:
    """Whether the point's own folder had better exist before the timer starts."""
    try:
        return b"run_dir" in Path(registered.file).read_bytes()
    except OSError:
        return True


def _hang_up(_signum: int, _frame: Any) -> NoReturn:
    raise HungUpError


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
