"""The network keys of a task's tables, as Harbor reads them.

`[environment]` has the network of the whole task, public where it says nothing; `[agent]` and `[verifier]`
may have another for their phase. `allowed_hosts` belongs to `network_mode = "allowlist"` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from proctor.errors import TaskError
from proctor.model.network import wrong_host
from proctor.model.task import Network

_MODES: dict[str, Network] = {
    "no-network": "none",
    "none": "none",
    "public": "public",
    "allowlist": "allowlist",
}
_KEYS = ("network_mode", "allowed_hosts")
Wrong = Callable[[str, object, str], TaskError]


class NetworkKeys(NamedTuple):
    """What a table says; no network: the table leaves it to another."""

    network: Network | None
    allowed_hosts: tuple[str, ...]


def read_network(table: Mapping[str, Any], wrong: Wrong) -> NetworkKeys:
    """The network of a table; `wrong` makes the error for a key, what was found and what is expected."""
    return _read(table, wrong, None)


def read_environment_network(table: Mapping[str, Any], wrong: Wrong) -> NetworkKeys:
    """The same of an environment, which may have the older key `allow_internet` instead."""
    return _read(table, wrong, table.get("allow_internet"))


def _read(table: Mapping[str, Any], wrong: Wrong, legacy: object) -> NetworkKeys:
    mode, hosts = table.get("network_mode"), table.get("allowed_hosts")
    if mode is None and hosts is None and legacy is not None:
        if not isinstance(legacy, bool):
            raise wrong("allow_internet", legacy, "true or false")
        return NetworkKeys("public" if legacy else "none", ())
    if mode is not None and mode not in _MODES:
        raise wrong("network_mode", mode, "public, no-network or allowlist")
    network = None if mode is None else _MODES[mode]
    if hosts is None:
        return NetworkKeys(network, ())
    if not isinstance(hosts, list) or not all(isinstance(each, str) for each in hosts):
        raise wrong("allowed_hosts", hosts, "a list of host names")
    if network != "allowlist" and (hosts or mode is None):
        raise wrong("allowed_hosts", hosts, "left out unless network_mode is allowlist")
    for each in hosts:
        if wrong_host(each):
            raise wrong("allowed_hosts", each, "host names, *.domains, addresses or ranges, without ports")
    return NetworkKeys(network, tuple(hosts))


def over(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A step's table over the task's: the network keys are taken from one of them, never mixed."""
    kept = {
        key: value for key, value in shared.items() if own.get("network_mode") is None or key not in _KEYS
    }
    return {**kept, **own}
