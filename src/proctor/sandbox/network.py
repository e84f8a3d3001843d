"""The network of one running sandbox: none, public or an allow-list, and another in a later phase."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from proctor.errors import SandboxError
from proctor.sandbox import proxy
from proctor.sandbox.base import Network
from proctor.sandbox.init.client import Keeper
from proctor.sandbox.init.session import Session
from proctor.sandbox.reach import NetworkRules, find_reach
from proctor.sandbox.slirp import Launch, PublicNetwork


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
        self._proxy: proxy.AllowListProxy | None = None
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
            self._proxy = proxy.AllowListProxy(allowed_hosts, await find_reach(self._rules))
            self.env = await self._listen(self._proxy)
        self.mode = network

    async def _listen(self, made: proxy.AllowListProxy) -> dict[str, str]:
        """Serve the proxy at its usual port, or where an agent has kept that one, at another."""
        try:
            listener = await self._session.listen(proxy.PORT)
        except SandboxError:
            listener = await self._session.listen(0)
        port: int = listener.getsockname()[1]
        await made.start(listener)
        return proxy.proxy_environment(port)

    async def stop(self) -> None:
        """Disconnect."""
        self.mode, self.env = "none", {}
        public, self._public = self._public, None
        served, self._proxy = self._proxy, None
        if public:
            await public.stop()
        if served:
            await served.stop()
