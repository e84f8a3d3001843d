"""The small tables of a `task.toml`: health checks, artifacts, hooks, tool servers, networks, verifiers.

`[environment]` has the network of the whole task, public where it says nothing; `[agent]` and `[verifier]`
may have another for their phase. `allowed_hosts` belongs to `network_mode = "allowlist"` alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, cast

from proctor.errors import TaskError
from proctor.model.network import wrong_host
from proctor.model.task import MAIN_SERVICE, CollectHook, Healthcheck, McpServer, Network, TaskArtifact
from proctor.tasks.toml_file import Table, TomlFile

Transport = Literal["stdio", "sse", "streamable-http"]
_SERVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_NOT_PORTABLE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[1-9¹²³])", re.IGNORECASE)
_TOPOLOGY = re.compile(r"[1-9]\d*(x[1-9]\d*)+")
_MODES: dict[str, Network] = {
    "no-network": "none",
    "none": "none",
    "public": "public",
    "allowlist": "allowlist",
}
_KEYS = ("network_mode", "allowed_hosts")
_DEFINES = ("Dockerfile", "docker-compose.yaml")


def healthcheck(file: TomlFile, table: Mapping[str, Any]) -> Healthcheck | None:
    """`healthcheck` of an environment or a step."""
    found = file.table(table, "healthcheck")
    if not found:
        return None
    file.known("[environment.healthcheck]", found, "healthcheck")
    if not isinstance(found.get("command"), str):
        raise file.wrong("command", found.get("command"), "a command line", found)
    return Healthcheck(
        command=found["command"],
        interval_s=_seconds(file, found, "interval_sec", 5.0),
        timeout_s=file.positive(found, "timeout_sec", 30.0),
        start_period_s=_seconds(file, found, "start_period_sec", 0.0),
        start_interval_s=_seconds(file, found, "start_interval_sec", 5.0),
        retries=int(file.positive(found, "retries", 3)),
    )


def _seconds(file: TomlFile, table: Table, key: str, default: float) -> float:
    found = file.number(table, key)
    return default if found is None else found


def artifacts(file: TomlFile, table: Mapping[str, Any]) -> tuple[TaskArtifact, ...]:
    """`artifacts` of a task or a step: texts, or tables."""
    rows = table.get("artifacts", [])
    if not isinstance(rows, list):
        raise file.wrong("artifacts", rows, "a list of paths or tables", table)
    return tuple(_artifact(file, row, table) for row in rows)


def _artifact(file: TomlFile, row: object, table: Mapping[str, Any]) -> TaskArtifact:
    if isinstance(row, str):
        return TaskArtifact(source=_source(file, row, table))
    if not isinstance(row, dict) or not isinstance(row.get("source"), str):
        raise file.wrong("artifacts", row, "a path, or a table with 'source'", table)
    file.known("[[artifacts]]", row)
    service = _service(file, row.get("service"), table)
    source = _source(file, row["source"], table)
    if service != MAIN_SERVICE and not source.startswith("/"):
        raise file.wrong("source", source, f"an absolute path, because service '{service}' has it", table)
    return TaskArtifact(
        source=source,
        destination=_destination(file, row.get("destination"), table),
        exclude=file.strings(row, "exclude"),
        service=service,
    )


def _source(file: TomlFile, source: str, table: Mapping[str, Any]) -> str:
    if ".." in PurePosixPath(source).parts or not source.strip():
        raise file.wrong("artifacts", source, "a path without '..'", table)
    return source


def _destination(file: TomlFile, value: object, table: Mapping[str, Any]) -> str | None:
    if value is None or value == "":
        return None
    path = PurePosixPath(str(value))
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in str(value):
        raise file.wrong("destination", value, "a relative path without '..' and backslashes", table)
    if str(path) == "manifest.json":
        raise file.wrong("destination", value, "another name: the list of what was kept has this one", table)
    return str(path)


def _service(file: TomlFile, value: object, table: Mapping[str, Any]) -> str:
    name = MAIN_SERVICE if value is None else str(value).strip()
    if not _SERVICE.fullmatch(name):
        raise file.wrong("service", value, "the name of a compose service", table)
    return name


def collect(file: TomlFile, table: Mapping[str, Any]) -> tuple[CollectHook, ...]:
    """`[[verifier.collect]]`."""
    hooks = []
    for row in file.tables(table, "collect"):
        file.known("[[verifier.collect]]", row)
        if not isinstance(row.get("command"), str):
            raise file.wrong("command", row.get("command"), "a command line", row)
        user = row.get("user")
        hooks.append(
            CollectHook(
                command=row["command"],
                service=_service(file, row.get("service"), row),
                timeout_s=file.positive(row, "timeout_sec", 60.0),
                user=None if user is None else str(user),
            )
        )
    return tuple(hooks)


def mcp_servers(file: TomlFile, table: Mapping[str, Any]) -> tuple[McpServer, ...]:
    """`[[environment.mcp_servers]]`."""
    servers = []
    for row in file.tables(table, "mcp_servers"):
        file.known("[[environment.mcp_servers]]", row)
        transport = row.get("transport", "sse")
        transport = "streamable-http" if transport == "http" else transport
        if transport not in {"stdio", "sse", "streamable-http"}:
            raise file.wrong("transport", transport, "sse, streamable-http or stdio", row)
        needed = "command" if transport == "stdio" else "url"
        for key in ("name", needed):
            if not isinstance(row.get(key), str) or not row[key]:
                raise file.wrong(key, row.get(key), f"given for a server with transport {transport}", row)
        servers.append(
            McpServer(
                name=row["name"],
                transport=cast("Transport", transport),
                url=row.get("url"),
                command=row.get("command"),
                args=file.strings(row, "args"),
            )
        )
    return tuple(servers)


def tpu(file: TomlFile, table: Mapping[str, Any]) -> str:
    """The TPU slice that is asked for; empty when none is."""
    found = file.table(table, "tpu")
    if not found:
        return ""
    file.known("[environment.tpu]", found)
    topology = str(found.get("topology", "")).strip()
    if not _TOPOLOGY.fullmatch(topology):
        raise file.wrong("topology", found.get("topology"), "dimensions, for example 2x4", found)
    return f"{found.get('type', '')} {topology}"


def operating_system(file: TomlFile, table: Mapping[str, Any]) -> Literal["linux", "windows"]:
    """The system that the task is made for."""
    found = str(table.get("os", "linux")).lower()
    if found not in {"linux", "windows"}:
        raise file.wrong("os", table.get("os"), "linux or windows", table)
    return cast("Literal['linux', 'windows']", found)


def min_reward(file: TomlFile, row: Table) -> dict[str, float]:
    """The minimum of the reward, or of some of its parts."""
    found = row.get("min_reward")
    if isinstance(found, dict):
        table = file.table(row, "min_reward")
        return {key: file.number(table, key) or 0.0 for key in table}
    value = file.number(row, "min_reward")
    return {} if value is None else {"reward": value}


def step_name(file: TomlFile, row: Table, where: str) -> str:
    """A step's name, which is also the name of its folder."""
    name = row.get("name")
    if not isinstance(name, str):
        raise file.wrong("name", name, f"a plain word in {where}", row)
    device = _DEVICE.fullmatch(name.partition(".")[0].rstrip(" "))
    if not name.strip() or name.strip(".") == "" or name.endswith((".", " ")) or device:
        raise file.wrong("name", name, f"a plain word in {where}", row)
    if _NOT_PORTABLE.search(name) or len(name.encode()) > 255:
        raise TaskError(
            f"{file.place('name', row)}: 'name' must be a plain word in {where}, usable as the name of a "
            f"folder, not {name!r}"
        )
    return name


def step_key(name: str) -> str:
    """By which two names of steps are the same on some file system."""
    return unicodedata.normalize("NFC", name).casefold()


class NetworkKeys(NamedTuple):
    """What a table says; no network: the table leaves it to another."""

    network: Network | None
    allowed_hosts: tuple[str, ...]


def network_of(file: TomlFile, table: Mapping[str, Any], *, environment: bool = False) -> NetworkKeys:
    """The network of a table; that of an `environment` may have the older key `allow_internet` instead."""
    legacy = table.get("allow_internet") if environment else None
    mode, hosts = table.get("network_mode"), table.get("allowed_hosts")
    if mode is None and hosts is None and legacy is not None:
        if not isinstance(legacy, bool):
            raise file.wrong("allow_internet", legacy, "true or false", table)
        return NetworkKeys("public" if legacy else "none", ())
    if mode is not None and mode not in _MODES:
        raise file.wrong("network_mode", mode, "public, no-network or allowlist", table)
    network = None if mode is None else _MODES[mode]
    if hosts is None:
        return NetworkKeys(network, ())
    if not isinstance(hosts, list) or not all(isinstance(each, str) for each in hosts):
        raise file.wrong("allowed_hosts", hosts, "a list of host names", table)
    if network != "allowlist" and (hosts or mode is None):
        raise file.wrong("allowed_hosts", hosts, "left out unless network_mode is allowlist", table)
    for each in hosts:
        if wrong_host(each):
            raise file.wrong(
                "allowed_hosts", each, "host names, *.domains, addresses or ranges, without ports", table
            )
    return NetworkKeys(network, tuple(hosts))


def over(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A step's table over the task's: the network keys are taken from one of them, never mixed."""
    kept = {
        key: value for key, value in shared.items() if own.get("network_mode") is None or key not in _KEYS
    }
    return {**kept, **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A separate verifier."""

    table: Table
    """`[verifier.environment]` of the step or of the task; empty for a copy of the task's environment."""
    image_from: Path | None = None
    """The folder of tests that has an image of its own, with the tests in it."""
    image: str | None = None
    """A ready image that has the tests in it."""


def definition_of(
    file: TomlFile, own: Table, above: Mapping[str, object], folder: Path, step: str | None
) -> Definition | None:
    """What a verifier runs in; None when it shares the agent's sandbox. A step's word counts first."""
    mode = _mode(file, own) or (_mode(file, above) if step else None) or "shared"
    if mode == "shared":
        return None
    candidates = [(own, folder / "tests" if step is None else folder / "steps" / step / "tests")]
    if step is not None:
        candidates.append((file.named(above, getattr(above, "path", ())), folder / "tests"))
    tables = [file.table(each, "environment") for each, _ in candidates]
    table = next((each for each in tables if each), tables[0])
    for environment, (_, tests) in zip(tables, candidates, strict=True):
        if image := environment.get("docker_image"):
            return Definition(table=table, image_from=tests, image=str(image))
        if any((tests / name).is_file() for name in _DEFINES):
            return Definition(table=table, image_from=tests)
    return Definition(table=table)


def _mode(file: TomlFile, table: Mapping[str, object]) -> str | None:
    mode = table.get("environment_mode")
    own = "environment" in table
    if mode is None:
        return "separate" if own else None
    if mode not in {"shared", "separate"}:
        raise file.wrong("environment_mode", mode, "shared or separate", table)
    if mode == "shared" and own:
        place = file.place("environment_mode", table)
        raise TaskError(
            f"{place}: environment_mode is 'shared' and there is a [verifier.environment]; remove one of them"
        )
    return str(mode)
