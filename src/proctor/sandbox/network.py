"""The network of one running sandbox: none, public or an allow-list, and another in a later phase.

slirp4netns carries a public one; routes set from outside keep it to the internet. The inside may not
configure its network, root or not, so no route can be taken away from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.disk import write_all
from proctor.errors import SandboxError
from proctor.sandbox.base import Network, ended
from proctor.sandbox.init.keeper import Keeper
from proctor.sandbox.init.session import Session
from proctor.sandbox.network_rules import DEVICE, MTU, NetworkRules, resolve_rules

if TYPE_CHECKING:
    from proctor.sandbox.proxy import AllowListProxy

Launch = Callable[[Sequence[str], Sequence[int]], Coroutine[Any, Any, int]]
"""Runs a program of the host that may enter a sandbox's network; its exit code. The descriptors become its
input, output and error stream, and are closed here once it has them."""
TUN = Path("/dev/net/tun")
_READY_S = 30.0
_SAID_BYTES = 4096
_OUT_OF_THE_WAY = 'exec 3>&1 1>&2; exec "$@"'
"""slirp4netns also prints on its output: the descriptor on which it reports must be another."""
_APART = ("unshare", "--mount", "--propagation", "private")
"""As it shuts itself in, slirp4netns lets go of all mounts, and where those are shared the machine would lose
them too: the networks that podman and `ip netns` keep below /run/netns."""


def obstacle() -> str:
    """Why a public network cannot come up here, as far as a quick look can tell; empty when it may."""
    for program, package in (("slirp4netns", "slirp4netns"), ("ip", "iproute2"), ("nsenter", "util-linux")):
        if not shutil.which(program):
            return f"{program} is not installed: install the package {package}"
    if not TUN.exists():
        return f"{TUN} is missing: `modprobe tun`, or give it to this container (--device {TUN})"
    if os.geteuid() != 0 and not os.access(TUN, os.R_OK | os.W_OK):
        return f"{TUN} may not be used by this account: as root, chmod 666 {TUN}"
    return ""


def by_keeper(keeper: Keeper) -> Launch:
    """Programs that may enter the networks of the keeper's sandboxes."""

    async def launch(argv: Sequence[str], fds: Sequence[int]) -> int:
        running = asyncio.create_task(keeper.run(argv, fds))
        try:
            await asyncio.sleep(0)  # the task has sent the descriptors now
        finally:
            for fd in fds:
                os.close(fd)
        return await running

    return launch


class SandboxNetwork:
    """What connects one sandbox. It begins with none."""

    def __init__(self, session: Session, rules: NetworkRules, on_lost: Callable[[str], None]) -> None:
        self._session = session
        self._on_lost = on_lost
        """Is told when a network is lost that was up."""
        self._rules = rules
        self._public: PublicNetwork | None = None
        self._proxy: AllowListProxy | None = None
        self.env: dict[str, str] = {}
        """Variables that commands inside need to use it."""
        self.mode: Network = "none"

    async def change(
        self, network: Network, allowed_hosts: Sequence[str], launch: Launch | None, pid: int
    ) -> None:
        """Disconnect what there is, then connect as asked; SandboxError when it does not come up."""
        await self.stop()
        if network == "public":
            if launch is None or not pid:
                raise SandboxError(
                    "network 'public' did not come up: only root may enter the network of this container; "
                    "run Proctor as root, use podman or bubblewrap, or do without it (--network none)"
                )
            self._public = PublicNetwork(launch, self._rules, self._on_lost)
            await self._public.start(pid)
        elif network == "allowlist":
            await self._serve_proxy(allowed_hosts)
        self.mode = network

    async def _serve_proxy(self, allowed_hosts: Sequence[str]) -> None:
        """Serve the proxy at its usual port, or where an agent has kept that one, at another."""
        from proctor.sandbox import proxy

        self._proxy = proxy.AllowListProxy(allowed_hosts, await resolve_rules(self._rules))
        try:
            listener = await self._session.listen(proxy.PORT)
        except SandboxError:
            listener = await self._session.listen(0)
        port: int = listener.getsockname()[1]
        await self._proxy.start(listener)
        self.env = proxy.proxy_environment(port)

    async def stop(self) -> None:
        """Disconnect."""
        self.mode, self.env = "none", {}
        public, self._public = self._public, None
        served, self._proxy = self._proxy, None
        if public:
            await public.stop()
        if served:
            await served.stop()


class PublicNetwork:
    """A slirp4netns process that gives one network namespace the internet."""

    def __init__(self, launch: Launch, rules: NetworkRules, on_lost: Callable[[str], None]) -> None:
        self._launch = launch
        self._rules = rules
        self._on_lost = on_lost
        """Is told when the connection ends although nobody asked for that."""
        self._task: asyncio.Task[int] | None = None
        self._exit_fd = -1

    async def start(self, pid: int) -> None:
        """Connect the network namespace of a process; SandboxError says what to install or change."""
        if problem := obstacle():
            raise _refused(problem)
        rules = await resolve_rules(self._rules)
        try:
            await self._connect(pid)
            await configure(self._launch, pid, rules.routes())
        except BaseException:
            await self.stop()
            raise

    async def _connect(self, pid: int) -> None:
        enter = ["nsenter", f"--net={self._rules.outside}"] if self._rules.outside else []
        command = [
            "sh", "-c", _OUT_OF_THE_WAY, "sh", *enter, *_APART,
            "slirp4netns", f"--mtu={MTU}", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp",
            "--ready-fd=3", "--exit-fd=0", "--netns-type=path", f"/proc/{pid}/ns/net", DEVICE,
        ]  # fmt: skip
        leave, self._exit_fd = os.pipe2(os.O_CLOEXEC)
        ready, tell = os.pipe2(os.O_CLOEXEC)
        said, say = _message_pipe()
        self._task = asyncio.create_task(self._launch(command, [leave, tell, say]))
        try:
            word = await _first_byte(ready, _READY_S)
            if word != b"1":
                raise _refused(_reason(said, "slirp4netns ended before the network was up"))
            self._task.add_done_callback(self._ended)
        finally:
            os.close(ready)
            os.close(said)

    def _ended(self, task: asyncio.Task[int]) -> None:
        if self._exit_fd >= 0 and not task.cancelled():
            how = task.exception() or f"exit code {task.result()}"
            self._on_lost(f"slirp4netns, which carries the network, ended by itself ({how})")

    async def stop(self) -> None:
        """Disconnect. The routes that refuse stay: they lead nowhere."""
        if self._exit_fd >= 0:
            os.close(self._exit_fd)
            self._exit_fd = -1
        task, self._task = self._task, None
        if task:
            await ended(task)


async def configure(launch: Launch, pid: int, lines: Iterable[str], *options: str) -> None:
    """Set addresses and routes in the network namespace of a process, all or an error."""
    text = "".join(f"{line}\n" for line in lines)
    given = os.memfd_create("routes", os.MFD_CLOEXEC)
    write_all(given, text.encode())
    os.lseek(given, 0, os.SEEK_SET)
    said, say = _message_pipe()
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *options, "-batch", "-"]
    try:
        if await launch(command, [given, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), say]):
            raise _refused(_reason(said, "`ip -batch` failed"))
    finally:
        os.close(said)


def _refused(problem: str) -> SandboxError:
    return SandboxError(
        f"network 'public' did not come up: {problem}; or do without it (--network none). "
        "`proctor doctor` tests it"
    )


def _message_pipe() -> tuple[int, int]:
    """A pipe for messages. What does not fit is lost, so that a writer never waits for a reader."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    return reader, writer


def _reason(said: int, otherwise: str) -> str:
    """The last words of a program that failed."""
    with contextlib.suppress(BlockingIOError):
        lines = os.read(said, _SAID_BYTES).decode(errors="replace").strip().splitlines()
        words = [line for line in lines if not line.startswith(("WARNING: Support for", "sent tapfd"))]
        if words:
            return f"{otherwise} ({'; '.join(words[-3:])})"
    return otherwise


async def _first_byte(fd: int, timeout_s: float) -> bytes:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(fd, event.set)
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        raise _refused(f"slirp4netns was not ready after {timeout_s:.0f} s") from None
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 1)
