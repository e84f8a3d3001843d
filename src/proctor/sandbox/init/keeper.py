"""Proctor's side of the keeper: launch it once, then ask for sandboxes, their end, and trusted programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.disk import opened
from proctor.errors import SandboxError
from proctor.sandbox.init.channel import Channel, Replies
from proctor.sandbox.userns import Ids, write_maps

_LAUNCH_S = 20.0
_OF_A_TERMINAL = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""What `nohup` or `&` starts ignores some of them, Proctor too: inside they mean what they always mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What all processes of a sandbox used together, known when it has ended."""

    cpu_s: float = 0.0
    peak_process_bytes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0

    @classmethod
    def parse(cls, words: Sequence[str]) -> Usage:
        """From microseconds, kilobytes and blocks of 512 bytes, as the kernel counts them."""
        cpu_us, rss_kb, blocks_in, blocks_out = (int(word) for word in words)
        return cls(
            cpu_s=cpu_us / 1e6,
            peak_process_bytes=rss_kb * 1024,
            read_bytes=blocks_in * 512,
            write_bytes=blocks_out * 512,
        )


class Keeper:
    """The running keeper process."""

    def __init__(self, pid: int, ids: Ids, program: str) -> None:
        self.pid = pid
        self.program = program
        self.ids = ids
        self._channel: Channel
        self._replies = Replies()
        self._exits: dict[str, Callable[[Usage], None]] = {}
        self.alive = True

    @classmethod
    async def launch(cls, program: str, ids: Ids) -> Keeper:
        """Start the program with an empty environment and no descriptor but its socket, then map its ids."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        drop = [str(ids.keeper_uid), str(ids.keeper_gid)] if ids.as_root else []
        try:
            pid = os.posix_spawn(  # noqa: ASYNC221 - once per process; it does not wait
                program,
                ["proctor", *drop],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
                ],
                setsid=True,
                setsigdef=_OF_A_TERMINAL,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot run the keeper {program}: {error.strerror}") from error
        finally:
            theirs.close()
        keeper = cls(pid, ids, program)
        greeting = keeper._replies.expect("hello")
        keeper._channel = Channel(ours, keeper._message, keeper._gone)
        try:
            async with asyncio.timeout(_LAUNCH_S):
                _check_greeting(await greeting)
                await asyncio.to_thread(write_maps, pid, ids)
        except BaseException:
            await keeper.close()
            raise
        keeper._channel.send(["G"])
        return keeper

    def start(self, fields: Sequence[str], fds: Sequence[int], on_exit: Callable[[Usage], None]) -> str:
        """Start a sandbox; returns its name for the keeper. Its own socket reports when it is ready."""
        self._require()
        ident = self._replies.number()
        self._exits[ident] = on_exit
        self._channel.send([f"S{ident}", *fields], fds)
        return ident

    async def end(self, ident: str, name: str = "", folder: int = -1) -> int:
        """Kill a sandbox with all that is in it and remove `name` from the folder, also if it never began.

        The bytes that its upper folder had. Without a name nothing is removed.
        """
        self._require()
        reply = self._replies.expect(ident)
        self._channel.send([f"E{ident}", *([f"n{name}"] if name else [])], [folder] if name else [])
        words = await reply
        if on_exit := self._exits.pop(ident, None):
            on_exit(Usage.parse(words[4:8]))
        if words[0] == "g" and words[2] != "0":
            raise SandboxError(f"could not remove the state of sandbox {name}")
        return int(words[3])

    async def remove(self, name: str, folder: int) -> None:
        """Remove a tree that a sandbox left, whichever user owns its files."""
        await self.end(f"remove-{self._replies.number()}", name, folder)

    async def archive(self, folder: int, target: int, max_bytes: int, after: Sequence[int] = ()) -> int:
        """Write what changed in a sandbox, by its state folder, as a tar into a file.

        With a descriptor in `after`, a byte comes from there first: then the sandbox is quiet.
        0: done; 1: too large; 2: a real tar must do it; anything else: it could not be read.
        """
        self._require()
        ident = self._replies.number()
        reply = self._replies.expect(ident)
        self._channel.send([f"A{ident}", f"m{max_bytes}"], [folder, target, *after])
        try:
            return int((await reply)[2])
        except asyncio.CancelledError:
            self._channel.send([f"K{ident}"])
            raise

    async def run(self, argv: Sequence[str], fds: Sequence[int] = ()) -> int:
        """Run a trusted program of the host as root of the outer user namespace; its exit code.

        The descriptors become 0, 1, 2 and 3 of the program.
        """
        self._require()
        ident = self._replies.number()
        reply = self._replies.expect(ident)
        self._channel.send([f"R{ident}", *(f"a{word}" for word in argv)], fds)
        try:
            return int((await reply)[2])
        except asyncio.CancelledError:
            self._channel.send([f"K{ident}"])
            raise

    async def output(
        self, argv: Sequence[str], folder: int | None = None, *, stdin: int | None = None
    ) -> tuple[int, str, str]:
        """As `run`, with a folder as descriptor 3; exit code, output and errors."""
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("output", "errors")]
        try:
            with opened(os.devnull, os.O_RDWR) as null:
                given = [null if stdin is None else stdin, *files, *([] if folder is None else [folder])]
                code = await self.run(argv, given)
            out, said = (os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace") for fd in files)
        finally:
            for fd in files:
                os.close(fd)
        return code, out, said

    async def close(self) -> None:
        """End the keeper, and with it every sandbox."""
        if hasattr(self, "_channel"):
            self._channel.close()
        self._gone()
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, done.set)
        try:
            async with asyncio.timeout(5):
                await done.wait()
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)  # noqa: ASYNC222 - it has ended

    def _require(self) -> None:
        if not self.alive:
            raise SandboxError("the sandbox keeper process has died")

    def _message(self, words: list[str], fds: list[int]) -> None:
        del fds
        key = "hello" if words[0] in {"m", "e"} else words[1]
        if words[0] == "x":
            if on_exit := self._exits.pop(key, None):
                on_exit(Usage.parse(words[3:7]))
            return
        self._replies.give(key, words)

    def _gone(self) -> None:
        self.alive = False
        exits, self._exits = self._exits, {}
        for on_exit in exits.values():
            on_exit(Usage())
        self._replies.fail(SandboxError("the sandbox keeper process has died"))


def _check_greeting(words: Sequence[str]) -> None:
    if words[0] != "m":
        raise SandboxError(f"the keeper cannot work here: {' '.join(words[1:])}")
