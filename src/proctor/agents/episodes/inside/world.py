"""The environment that a task sees: files, hidden state and output in memory, behind the task's limits."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_PORTS = ("", "80", "443")


class SandboxViolation(RuntimeError):  # noqa: N818 - the name that tasks of this kind know
    """An action used what its task does not allow."""


def normal_path(path: str) -> str:
    """An absolute path without `.` and empty parts; ValueError for one that leads upwards."""
    if not isinstance(path, str) or not path:
        raise ValueError("a path must be a text that is not empty")
    parts = [each for each in path.split("/") if each not in ("", ".")]
    if ".." in parts:
        raise ValueError("a path may not contain '..'")
    return "/" + "/".join(parts)


class NetworkGuard:
    """Which hosts actions may reach."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = tuple(each.strip().lower().rstrip(".").strip("[]") for each in hosts)

    def allowed(self, host: str) -> bool:
        """Whether a host, or the host of an address, is on the list."""
        name = self._parts(host)[1]
        return bool(name) and any(self._matches(each, name) for each in self._hosts)

    def check(self, host: str) -> str:
        """The host's name; SandboxViolation when it may not be reached."""
        scheme, name, port = self._parts(host)
        if scheme not in ("", "http", "https") or port not in _PORTS or not self.allowed(host):
            raise SandboxViolation("the network may not be used to reach " + host)
        return name

    @staticmethod
    def _matches(entry: str, name: str) -> bool:
        below = entry.startswith("*.") and name.endswith(entry[1:])
        return entry in ("*", name) or below

    @staticmethod
    def _parts(host: str) -> tuple[str, str, str]:
        """Scheme, name and port of a host as actions write it."""
        scheme, found, rest = host.strip().partition("://")
        if not found:
            scheme, rest = "", scheme
        place = rest.split("/", 1)[0]
        if place.startswith("["):
            name, _, port = place[1:].partition("]")
            port = port[1:]
        else:
            name, _, port = place.partition(":")
        return scheme.lower(), name.lower().rstrip("."), port


class World:
    """What setup makes, actions change and the validator judges."""

    def __init__(self, roots: Iterable[str], hosts: Iterable[str]) -> None:
        self._roots = [normal_path(each) for each in roots]
        self._network = NetworkGuard(hosts)
        self._files: dict[str, str] = {}
        self._hidden: dict[str, Any] = {}
        self._output: dict[str, Any] = {}
        self._seen: set[str] = set()
        self._used: list[dict[str, str]] = []

    def list_dir(self, path: str) -> list[str]:
        """What is directly in a folder, by full paths."""
        prefix = self._allowed("list_dir", path).rstrip("/") + "/"
        below = (each[len(prefix) :] for each in self._files if each.startswith(prefix))
        return sorted({prefix + each.split("/", 1)[0] for each in below})

    def read_file(self, path: str) -> str:
        """The content of a file; KeyError when there is none."""
        return self._files[self._allowed("read_file", path)]

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return self._allowed("exists", path) in self._files

    def write_file(self, path: str, content: str) -> None:
        """Create or replace a file."""
        self._files[self._allowed("write_file", path)] = content

    def require_network(self, host: str) -> None:
        """SandboxViolation when the host may not be reached."""
        self._used.append({"type": "net", "host": self._network.check(host)})

    def network_guard(self) -> NetworkGuard:
        """The rules for hosts."""
        return self._network

    def set_hidden_state(self, key: str, value: object) -> None:
        """Remember what the agent does not see."""
        self._hidden[key] = value

    def get_hidden_state(self, key: str, default: object | None = None) -> Any:
        """What was remembered."""
        return self._hidden.get(key, default)

    def set_agent_output(self, key: str, value: Any) -> None:
        """Set the agent's answer."""
        self._output[key] = value

    def get_agent_output(self, key: str, default: Any = None) -> Any:
        """The agent's answer."""
        return self._output.get(key, default)

    def mark_seen(self, paths: Iterable[str]) -> None:
        """The agent knows of these files from now on."""
        self._seen.update(normal_path(each) for each in paths)

    def visible_state(self) -> dict[str, Any]:
        """What every observation shows."""
        return {"files_seen": sorted(self._seen)}

    def take_used(self) -> list[dict[str, str]]:
        """Files and hosts that were used since the last call."""
        used, self._used = self._used, []
        return used

    def _allowed(self, use: str, path: str) -> str:
        try:
            place = normal_path(path)
        except ValueError as error:
            raise SandboxViolation(str(error)) from error
        if not any(root in ("/", place) or place.startswith(root + "/") for root in self._roots):
            raise SandboxViolation(f"{place} is not below a folder that the task allows: {self._roots}")
        self._used.append({"type": "fs", "op": use, "path": place})
        return place
