"""What a sandbox's network may reach: the internet, and what `network_allow` opens beyond it.

Never the addresses of this machine itself, unless one is opened by name or by just that address: a service
that listens on all of them is as private as one that listens on the loopback.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError
from proctor.model.network import NOT_THE_INTERNET, Range, may_be_reached, parse_allowed
from proctor.outbound import own_addresses

GATEWAY = "10.0.2.2"
ADDRESS = "10.0.2.100"
RESOLVER = "10.0.2.3"
"""What slirp4netns offers inside. Of its range only these three lead anywhere."""
DEVICE = "tap0"
MTU = 65520


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """What all networks of a back end have in common."""

    allow: tuple[str, ...] = ()
    """Addresses, ranges and names beyond the internet; checked by `model.network`."""
    outside: str = ""
    """The network namespace from which sandboxes connect, as a path; this process's own when empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRules:
    """The rules as addresses."""

    opened: tuple[Range, ...] = ()
    own: frozenset[str] = frozenset()
    """The addresses of this machine."""

    def allows(self, address: str) -> bool:
        """Whether a connection to an address is allowed."""
        return may_be_reached(address, self.opened, self.own)

    def services(self) -> Iterator[str]:
        """Lines for `ip -batch`: what the services of a compose file may not reach.

        An engine answers their questions for names at an address of this machine: that port stays open.
        """
        yield from self._unreachable_ranges()
        for protocol in ("udp", "tcp"):
            yield f"rule add pref 100 ipproto {protocol} dport 53 lookup main"
        for each in self._unreachable_own():
            yield f"rule add pref 101 to {each} unreachable"

    def services_v6(self) -> Iterator[str]:
        """The same for `ip -6 -batch`: on a bridge this machine has a link-local address too."""
        if any(":" in address for address in self.own):
            yield "rule add pref 101 unreachable"

    def _unreachable_ranges(self) -> Iterator[str]:
        for each in NOT_THE_INTERNET:
            if isinstance(each, ipaddress.IPv4Network) and not any(_covers(it, each) for it in self.opened):
                yield f"route replace unreachable {each}"

    def _unreachable_own(self) -> Iterator[ipaddress.IPv4Network]:
        for address in sorted(self.own):
            if ":" not in address and (each := ipaddress.IPv4Network(address)) not in self.opened:
                yield each

    def routes(self) -> Iterator[str]:
        """Lines for `ip -batch`: the whole network of a sandbox. The way out comes last."""
        yield f"link set {DEVICE} mtu {MTU} up"
        yield f"address replace {ADDRESS}/32 dev {DEVICE}"
        yield from self._unreachable_ranges()
        for each in self._unreachable_own():
            yield f"route replace unreachable {each}"
        yield f"route replace {GATEWAY}/31 dev {DEVICE}"
        for opened in self.opened:
            if opened.version == 4:
                yield f"route replace {opened} via {GATEWAY} dev {DEVICE}"
        yield f"route replace default via {GATEWAY} dev {DEVICE}"


def _covers(other: Range, each: ipaddress.IPv4Network) -> bool:
    return isinstance(other, ipaddress.IPv4Network) and each.subnet_of(other)


async def resolve_rules(rules: NetworkRules, proc: Path = Path("/proc")) -> AddressRules:
    """Resolve the names of the rules and look up the addresses of this machine, as they are now."""
    opened: list[Range] = []
    for text in rules.allow:
        try:
            entry = parse_allowed(text)
        except ValueError as error:
            raise SandboxError(f"network_allow: {error}") from error
        opened += await _resolved(entry) if isinstance(entry, str) else [entry]
    return AddressRules(opened=tuple(dict.fromkeys(opened)), own=frozenset(own_addresses(proc)))


async def _resolved(name: str) -> list[Range]:
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SandboxError(
            f"network_allow: '{name}' has no address ({error.strerror}); correct or remove the entry"
        ) from error
    found: list[Range] = []
    for address in dict.fromkeys(str(answer[4][0]) for answer in answers):
        try:
            entry = parse_allowed(address.partition("%")[0])
        except ValueError as error:
            raise SandboxError(f"network_allow: '{name}' resolves to {address}: {error}") from error
        assert not isinstance(entry, str)
        found.append(entry)
    return found
