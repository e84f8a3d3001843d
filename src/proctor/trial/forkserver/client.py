"""The controller's side of a fork server: start it, lend its lanes, end it with all that it started."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError
from proctor.experiments.base import REGISTRY, Registered
from proctor.processes import full_environment, kill_all, marked
from proctor.trial.forkserver.lane_client import FrameSocket, LaneClient, Pass
from proctor.trial.forkserver.output import Output
from proctor.trial.forkserver.wire import Message

START_TIMEOUT_S = 300.0
CLOSE_TIMEOUT_S = 10.0
MARKER = "PROCTOR_FORKSERVER"
_PROCTOR = str(Path(__file__).parents[2])
_ELSEWHERE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "experiments" / "suites")!r})
from listing import provide_proctor
del sys.path[0], sys.modules["listing"]
provide_proctor({_PROCTOR!r})
from proctor.trial.forkserver.__main__ import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
"""Starts the server in an interpreter that need not have Proctor."""


_HERE = (sys.executable, "-P", "-m", __package__ or "")


class ImportFailedError(Exception):
    """The experiment's module could not be imported; the failure says how."""

    def __init__(self, failure: Mapping[str, Any]) -> None:
        super().__init__(failure["message"])
        self.failure = dict(failure)


class ForkServer:
    """A warm server for one experiment, and its idle lanes."""

    def __init__(
        self,
        *,
        slug: str,
        sources: Sequence[str],
        preload: Sequence[str] = (),
        python: str | None = None,
        known: Registered | None = None,
    ) -> None:
        """`known`: the experiment that is meant, where several runs have one of that name."""
        self.slug = slug
        self.python = python
        self._token = secrets.token_hex(8)
        self._scratch = Path(tempfile.mkdtemp(prefix="proctor-"))
        # With sources of the run's own, what another run registered under this name is not meant.
        known = known if known or sources else REGISTRY.get(slug)
        self._hello = {
            "slug": slug,
            "module": known.cls.__module__ if known else "",
            "file": known.file if known else "",
            "sources": list(sources),
            "path": None if python else sys.path,
            "preload": list(preload),
            "scratch": str(self._scratch),
        }
        self._importing = False
        self.users = 0
        """How many trials want it kept."""
        self._idle: list[LaneClient] = []
        self._busy: set[LaneClient] = set()

    async def start(self) -> None:
        """Start and import. ImportFailedError when the module fails, SandboxError when it did not start."""
        ours, theirs = socket.socketpair()
        self._output = Output("server")
        with theirs:
            self._spawn(theirs.fileno())
        asyncio.get_running_loop().add_reader(self._output.reader, self._output.read)
        self._ready: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._control = FrameSocket(ours, self._heard)
        try:
            await self._control.send(self._hello)
            await asyncio.wait(
                {self._ready, self._control.closed},
                timeout=START_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._judge_start()
        except BaseException:
            await self.close()
            raise

    def _spawn(self, handle: int) -> None:
        """A process of its own session: Ctrl-C in the terminal is for the controller alone."""
        self._process = subprocess.Popen(
            [
                *([self.python, "-P", "-c", _ELSEWHERE] if self.python else _HERE),
                *(str(handle), str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output.writer,
            stderr=self._output.writer,
            pass_fds=[handle],
            start_new_session=True,
            env={"PYTHONHASHSEED": "0", **full_environment({MARKER: self._token})},
        )

    def _heard(self, message: Message) -> None:
        if "importing" in message:
            self._importing = True
        elif not self._ready.done():
            self._ready.set_result(message)

    def _judge_start(self) -> None:
        if self._ready.done():
            message = self._ready.result()
            if "invalid" in message:
                raise ImportFailedError(message["invalid"])
            return
        self._output.drain()
        words = self._output.end_of(4_000)
        if not self._importing:
            raise SandboxError(f"the fork server did not start: {words.strip() or 'no output'}")
        how = "ended the process" if self._control.closed.done() else f"took more than {START_TIMEOUT_S:g} s"
        message = {"phase": "import", "type": "ImportFailed", "traceback": words}
        raise ImportFailedError({**message, "message": f"importing '{self.slug}' {how}"})

    @property
    def alive(self) -> bool:
        """Whether it can make another lane."""
        return not self._control.closed.done()

    async def run(self, request: Mapping[str, Any]) -> Pass:
        """One pass on an idle lane; a new lane is made when none is idle."""
        lane = await self._take()
        self._busy.add(lane)
        try:
            return await lane.run(request)
        finally:
            self._busy.discard(lane)
            if lane.alive:
                self._idle.append(lane)

    async def _take(self) -> LaneClient:
        while self._idle:
            lane = self._idle.pop()
            if lane.alive:
                return lane
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        try:
            await self._control.send({"lane": True}, [theirs.fileno(), writer])
        except SandboxError:
            ours.close()
            os.close(reader)
            raise
        finally:
            theirs.close()
            os.close(writer)
        return LaneClient(ours, reader)

    async def close(self) -> None:
        """End the server, its lanes and whatever they run; wait until they are gone."""
        for lane in (*self._idle, *self._busy):
            lane.hang_up()
        self._control.hang_up()
        await asyncio.wait({self._control.closed}, timeout=CLOSE_TIMEOUT_S)
        for lane in (*self._idle, *self._busy):
            lane.close()
        self._control.close()
        clean = await asyncio.to_thread(self._collect)
        asyncio.get_running_loop().remove_reader(self._output.reader)
        self._output.close()
        if not clean:
            kill_all(marked(f"{MARKER}={self._token}"))
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _collect(self) -> bool:
        """Wait for the server's end, then insist; whether it ended in order."""
        try:
            self._process.wait(timeout=CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode == 0
