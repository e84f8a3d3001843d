"""Commands in one running sandbox, through the socket of its init."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

from proctor.errors import HostError, SandboxError
from proctor.sandbox.base import ExecResult, OnOutput
from proctor.sandbox.init.channel import Channel, Replies
from proctor.sandbox.init.line import Line
from proctor.sandbox.init.streams import Streams, close_quietly, input_descriptor
from proctor.sandbox.time_limit import Seconds, ends_within
from proctor.sandbox.transfer import Stream

_STALLED_S = 60.0
"""How long the init may need to end everything before it counts as stalled."""
_KILL_GRACE_S = 5.0
"""How long the init may need to end a command's tree before everything inside is ended."""


class Session:
    """The controller's side of an init."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cpu_s = 0.0
        self.output_paused_s = 0.0
        self.peak_process_bytes = 0
        self.read_bytes = 0
        self.write_bytes = 0
        self._channel: Channel | None = None
        self._ready: asyncio.Future[int] | None = None
        self._replies = Replies()
        self._received: dict[str, int] = {}
        self._lingering: list[Streams] = []
        self.lines: set[Line] = set()
        """To programs inside that stay."""
        self._quiet = True
        """Whether nothing runs inside but the init."""

    def open(self) -> socket.socket:
        """Begin listening; the socket returned is the init's end and the caller's to close."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = asyncio.get_running_loop().create_future()
        self._channel = Channel(ours, self._message, self._gone)
        return theirs

    async def ready(self, timeout_s: float) -> int:
        """Wait until the root is ready; SandboxError with the step that failed. The init's process id."""
        assert self._ready is not None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ready
        except TimeoutError:
            raise SandboxError(f"sandbox {self.name} was not ready after {timeout_s:.0f} s") from None

    @property
    def alive(self) -> bool:
        """Whether the init answers."""
        return self._channel is not None and not self._channel.closed

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        user: str,
        stdin: bytes | int | None = None,
        stdout: int | None = None,
        timeout_s: Seconds | None = None,
        on_output: OnOutput | None = None,
        keep_bytes: int = 1 << 20,
        builtin: bool = False,
        quiet: bool = False,
        fresh: Sequence[str] = (),
        streams: Sequence[Stream] = (),
    ) -> ExecResult:
        """Run a command to its end, or to its time limit and then the end of its whole tree.

        Before it starts all others are ended (`quiet`), folders are created again (`fresh`) and what each
        descriptor of `streams` holds is unpacked at its target; SandboxError when that fails. Descriptors as
        `stdin` and `stdout` stay the caller's, and what is written to the latter is not seen here.
        """
        channel = self._require()
        ident = self._replies.number()
        fields = [f"X{ident}", f"c{cwd}", f"u{user}", *self._flags(builtin=builtin, quiet=quiet)]
        fields += [f"f{path}" for path in fresh]
        fields += [f"r{each.target}" for each in streams]
        fields += [f"a{word}" for word in argv]
        fields += [f"e{name}={value}" for name, value in env.items()]
        if "\0" in "".join(fields):
            raise SandboxError("a command, its environment or its folder contains a NUL byte")
        reader = input_descriptor(stdin) if isinstance(stdin, bytes) else stdin
        output = Streams(on_output, keep_bytes)
        started = time.perf_counter()
        try:
            given = [] if reader is None else [reader]
            out = output.out.writer if stdout is None else stdout
            channel.send(fields, [out, output.err.writer, *given, *(each.fd for each in streams)])
        finally:
            output.started()
            if reader is not None and isinstance(stdin, bytes):
                close_quietly(reader)
        try:
            words, timed_out = await self._ended(ident, timeout_s)
        except BaseException:
            if not channel.closed:
                channel.send([f"K{ident}"])
            output.close()
            raise
        result = self._result(words, output, time.perf_counter() - started, timed_out=timed_out)
        if words[0] == "n":
            raise SandboxError(f"sandbox {self.name} could not be prepared: {last_line(result)}")
        return result

    def _flags(self, *, builtin: bool, quiet: bool) -> list[str]:
        """What the init must know of a command; afterwards it is known whether anything may still run."""
        flags = ["b"] if builtin else []
        if quiet and not self._quiet:
            flags.append("q")
            # Our own file operations leave nothing running.
        self._quiet = (self._quiet or quiet) and builtin
        return flags

    async def end_processes(self) -> None:
        """End every process but the init."""
        channel = self._require()
        if self._quiet:
            return
        ident = self._replies.number()
        channel.send([f"C{ident}"])
        await self._replies.expect(ident)
        self._quiet = not self._replies

    @contextlib.contextmanager
    def ending(self) -> Iterator[list[int]]:
        """End every process but the init; at the descriptor that is given a byte says when that is done.

        For another process to wait at. There is no descriptor when nothing runs.
        """
        channel = self._require()
        if self._quiet:
            yield []
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                channel.send([f"C{self._replies.number()}"], [writer])
            finally:
                os.close(writer)
            yield [reader]
        finally:
            os.close(reader)

    async def listen(self, port: int, *, everywhere: bool = False) -> socket.socket:
        """A listening socket on the inside's loopback, or on all its addresses, to be served out here.

        With port 0 the kernel chooses one that is free.
        """
        ident = self._replies.number()
        self._require().send([f"L{ident}", str(port), *(["any"] if everywhere else [])])
        words = await self._replies.expect(ident)
        if ident not in self._received:
            raise SandboxError(f"cannot listen inside {self.name}: {' '.join(words[2:])}")
        return socket.socket(fileno=self._received.pop(ident))

    def silence(self) -> None:
        """Receive nothing more from it; waiting callers get no answer. The init is not notified."""
        if self._channel:
            self._channel.silence()
        self._gone()
        for streams in self._lingering:
            streams.close()
        self._lingering.clear()
        for line in list(self.lines):
            line.close()

    def close(self) -> None:
        """Hang up; the init then ends, and all with it."""
        self.silence()
        if self._channel:
            self._channel.close()

    async def _ended(self, ident: str, timeout_s: Seconds | None) -> tuple[list[str], bool]:
        """The init's account of a command, and whether its time limit had passed."""
        future = self._replies.expect(ident)
        if timeout_s is None:
            return await future, False
        if await ends_within(future, timeout_s):
            return await future, False
        if self.alive:
            self._require().send([f"K{ident}"])
        if not (await asyncio.wait([future], timeout=_KILL_GRACE_S))[0] and self.alive:
            self._require().send([f"C{self._replies.number()}"])  # its tree does not die: end everything
            if not (await asyncio.wait([future], timeout=_STALLED_S))[0]:
                # Nothing inside can keep the init from ending it, so the machine does not let it.
                raise HostError(f"sandbox {self.name} does not answer: a command could not be ended")
        return await future, True

    def _result(self, words: list[str], streams: Streams, wall_s: float, *, timed_out: bool) -> ExecResult:
        code, killed, cpu_us, rss_kb, blocks_in, blocks_out = words[2:8]
        stdout, stderr = streams.drain()
        self.output_paused_s += streams.paused_s
        self.cpu_s += int(cpu_us) / 1e6
        self.peak_process_bytes = max(self.peak_process_bytes, int(rss_kb) * 1024)
        self.read_bytes += int(blocks_in) * 512
        self.write_bytes += int(blocks_out) * 512
        result = ExecResult(
            exit_code=int(code),
            timed_out=timed_out and killed == "1",
            wall_s=wall_s,
            cpu_s=int(cpu_us) / 1e6,
            peak_memory_bytes=int(rss_kb) * 1024,
            stdout=stdout,
            stderr=stderr,
        )
        if streams.open:
            self._lingering = [each for each in self._lingering if each.open]
            self._lingering.append(streams)
        return result

    def _require(self) -> Channel:
        if self._channel is None or self._channel.closed:
            raise SandboxError(f"sandbox {self.name} is not running")
        return self._channel

    def _message(self, words: list[str], fds: list[int]) -> None:
        if words[0] in {"ready", "e"}:
            if self._ready and not self._ready.done():
                if words[0] == "ready":
                    self._ready.set_result(int(words[1]))
                else:
                    self._ready.set_exception(SandboxError(f"sandbox {self.name}: {' '.join(words[1:])}"))
            return
        if not self._replies.give(words[1], words):
            close_quietly(*fds)
        elif fds:
            self._received[words[1]] = fds[0]

    def _gone(self) -> None:
        lost = SandboxError(f"sandbox {self.name} ended while it was in use")
        if self._ready and not self._ready.done():
            self._ready.set_exception(lost)
        self._replies.fail(lost)


def last_line(result: ExecResult) -> str:
    """What the init said last."""
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("proctor: ") if lines else ""
