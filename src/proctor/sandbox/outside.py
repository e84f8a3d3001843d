"""An outside of our own: a network in which every address answers and from which nothing leads on.

With it a sandbox's public network is tried for real, also against addresses that it must not reach, and no
packet ever leaves this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox
from proctor.sandbox.network import by_keeper
from proctor.sandbox.slirp import configure

ADDRESS = "11.22.33.44"
"""An address of the internet, as good as any other: here it leads nowhere else."""
PORT = 80
ANSWER = b"proctor\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def an_outside(backend: Bubblewrap) -> AsyncIterator[BubblewrapSandbox]:
    """As long as this lasts, new sandboxes of the back end connect to it instead of the real one.

    It is the network of a sandbox, without any connection, whose loopback has every address. A server there
    answers on port 80.
    """
    keeper = await backend.keeper()
    real = backend.network_rules
    sandbox = backend.sandbox(SandboxRequest(name="outside", root=Root(host=True)))
    await sandbox.start()
    try:
        listener = await sandbox.listen_everywhere(PORT)
        await configure(by_keeper(keeper), sandbox.init_pid, ["route add local 0.0.0.0/0 dev lo"])
        server = await asyncio.start_server(_answer, sock=listener)
        backend.network_rules = replace(real, outside=f"/proc/{sandbox.init_pid}/ns/net")
        try:
            yield sandbox
        finally:
            backend.network_rules = real
            server.close()
            await server.wait_closed()
    finally:
        await sandbox.stop()
