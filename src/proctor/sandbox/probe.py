"""What works here and why not, for `proctor doctor`: a sandbox is really made, and one that connects.

Its public network is tried against an outside of our own, a network in which every address answers and from
which nothing leads on: also addresses that must not be reached are tried, and no packet leaves this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox import limits, network, seccomp
from proctor.sandbox.base import Limits, Root, Sandbox, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox
from proctor.sandbox.network import by_keeper, configure
from proctor.sandbox.programs import missing_program, origin
from proctor.sandbox.userns import obstacle

ADDRESS = "11.22.33.44"
"""An address of the internet, as good as any other: outside of our own it leads nowhere else."""
PORT = 80
ANSWER = b"proctor\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `needed`: without it the back end does not work at all."""

    name: str
    ok: bool
    detail: str
    needed: bool = False


async def probe(home: Path) -> tuple[Check, ...]:
    """Everything that matters to bubblewrap sandboxes; at last one is made, and one that connects."""
    problem = obstacle()
    checks = [
        Check(name="user namespaces", ok=not problem, detail=problem or "allowed", needed=True),
        Check(name="keeper", ok=not missing_program(), detail=origin(), needed=True),
        Check(
            name="system call filter",
            ok=seccomp.supported(),
            detail="built for this processor" if seccomp.supported() else "unknown processor",
            needed=True,
        ),
        _cgroup_check(),
    ]
    checks.append(made := await _try_one(home, problem))
    checks.append(await _try_network(home, made.ok))
    return tuple(checks)


def _cgroup_check() -> Check:
    found = limits.find_cgroups(f"proctor-probe-{os.getpid()}")
    if found is None:
        why = "none writable; limits fall back to rlimits (try systemd-run --user --scope -p Delegate=yes)"
        return Check(name="control groups", ok=False, detail=why)
    limits.remove_parents(found)
    have = ", ".join(sorted(found.parents))
    lack = "; ".join(found.missing.values())
    detail = f"v{found.version}: {have}" + (f" ({lack})" if lack else "")
    return Check(name="control groups", ok=not found.missing, detail=detail)


async def _try_one(home: Path, problem: str) -> Check:
    name = "a sandbox of the host's own system"
    if problem:
        return Check(name=name, ok=False, detail="not tried", needed=True)
    backend = Bubblewrap(home)
    try:
        sandbox = backend.sandbox(SandboxRequest(name="probe", root=Root(host=True), limits=Limits(pids=64)))
        started = time.perf_counter()
        await sandbox.start()
        result = await sandbox.exec(["true"], timeout_s=20)
        await sandbox.stop()
        took_ms = (time.perf_counter() - started) * 1e3
    except (SandboxError, OSError) as error:
        return Check(name=name, ok=False, detail=str(error), needed=True)
    finally:
        await backend.close()
    if result.exit_code:
        said = result.stderr.decode(errors="replace").strip()
        return Check(name=name, ok=False, detail=f"`true` failed in it: {said}", needed=True)
    return Check(name=name, ok=True, detail=f"started, used and stopped in {took_ms:.0f} ms", needed=True)


async def _try_network(home: Path, possible: bool) -> Check:
    """Connect from a sandbox with a public network to a server in a network of our own."""
    name = "network 'public'"
    if problem := network.obstacle() or ("" if possible else "not tried"):
        return Check(name=name, ok=False, detail=problem)
    backend = Bubblewrap(home)
    try:
        async with an_outside(backend):
            limits = Limits(pids=64, network="public")
            sandbox = backend.sandbox(SandboxRequest(name="probe", root=Root(host=True), limits=limits))
            started = time.perf_counter()
            await sandbox.start()
            took_ms = (time.perf_counter() - started) * 1e3
            reached = await _reaches(sandbox, ADDRESS)
            private = [
                each for each in ("10.0.2.2", "10.1.2.3", "169.254.169.254") if await _reaches(sandbox, each)
            ]
            await sandbox.stop()
    except (SandboxError, OSError) as error:
        return Check(name=name, ok=False, detail=str(error))
    finally:
        await backend.close()
    if private:
        return Check(name=name, ok=False, detail=f"it reaches private addresses: {', '.join(private)}")
    if not reached:
        return Check(name=name, ok=False, detail="it came up, but a connection through it failed")
    return Check(name=name, ok=True, detail=f"up in {took_ms:.0f} ms; a connection through it worked")


async def _reaches(sandbox: Sandbox, address: str) -> bool:
    """Whether the server of `an_outside` answers at an address."""
    script = f"exec 3<>/dev/tcp/{address}/{PORT} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    result = await sandbox.exec(["bash", "-c", script], timeout_s=10)
    return result.stdout.endswith(ANSWER)


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
