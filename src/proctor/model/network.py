"""Which addresses are the internet, and what `network_allow` and `allowed_hosts` may say. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

Range = ipaddress.IPv4Network | ipaddress.IPv6Network
NOT_THE_INTERNET: tuple[Range, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # where Azure answers its own machines
        "169.254.0.0/16",  # where most clouds hand out credentials
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/9",
        "ff00::/8",
    )
)
"""Loopback, private, link-local, shared, test and reserved ranges, and those that carry IPv4 addresses."""
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}", re.IGNORECASE)
_NEVER = {
    "loopback": tuple(ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128")),
    "multicast": tuple(ipaddress.ip_network(text) for text in ("224.0.0.0/4", "ff00::/8")),
}
SLIRP = ipaddress.IPv4Network("10.0.2.0/24")
"""Where a sandbox's own end of a public network is; a neighbour of the host there cannot be opened alone."""


def may_be_reached(address: str, opened: Collection[Range], own: Collection[str]) -> bool:
    """Whether a connection to an address is allowed: one rule for sandboxes and for Proctor's own requests.

    The internet may be reached, and what is opened beyond it. `own` are the addresses of this machine, which
    no range opens: a service that listens on all of them is as private as one on the loopback.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6 and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    covering = [network for network in opened if ip in network]
    if str(ip) in own or ip.is_loopback or ip.is_unspecified:
        return any(network.num_addresses == 1 for network in covering)
    return bool(covering) or not any(ip in network for network in NOT_THE_INTERNET)


def parse_allowed(text: str) -> Range | str:
    """One entry of `network_allow`: a range, an address as a range of one, or a name.

    ValueError says what is wrong with it.
    """
    try:
        found = ipaddress.ip_network(text.strip("[]"), strict=True)
    except ValueError as error:
        if "has host bits set" in str(error):
            exact = ipaddress.ip_network(text, strict=False)
            raise ValueError(f"'{text}' is not the start of a range; did you mean {exact}?") from None
        if not is_name(text):
            raise ValueError(
                f"'{text}' is not an address, a range (10.0.0.0/8) or a name; ports, paths, schemes and "
                "wildcards do not belong there"
            ) from None
        return text.rstrip(".").lower()
    for kind, ranges in _NEVER.items():
        if any(found.version == each.version and found.overlaps(each) for each in ranges):
            raise ValueError(
                f"'{text}' has {kind} addresses, which cannot be opened; "
                "let the service listen on another address of this machine and name that one"
            )
    if isinstance(found, ipaddress.IPv4Network) and found.subnet_of(SLIRP):
        raise ValueError(f"'{text}' is in {SLIRP}, which every sandbox uses for its own connection")
    return found


def is_name(text: str) -> bool:
    """Whether a text could be the name of a host, and is not an address that was misspelt."""
    bare = text.rstrip(".")
    return bool(_NAME.fullmatch(bare)) and len(bare) <= 253 and not bare.rpartition(".")[2].isdigit()


def wrong_allowed(entry: str) -> str:
    """What is wrong with an entry of `network_allow`; empty when nothing is."""
    try:
        parse_allowed(entry)
    except ValueError as error:
        return str(error)
    return ""


def wrong_host(entry: str) -> str:
    """What is wrong with an entry of `allowed_hosts`; empty when nothing is."""
    name = entry.removeprefix("*.")
    if is_name(name):
        return ""
    try:
        ipaddress.ip_network(entry, strict=True)
    except ValueError:
        return f"'{entry}' is not a host name, *.domain, an address or a range; no ports, paths or schemes"
    return ""
