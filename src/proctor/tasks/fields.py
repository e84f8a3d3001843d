"""The keys of `task.toml`: every table, every key, its type, and what older files called it."""

from __future__ import annotations

import re
from difflib import get_close_matches

from proctor.errors import TaskError

ROOT = frozenset(
    {
        "schema_version",
        "version",
        "artifacts",
        "multi_step_reward_strategy",
        "task",
        "metadata",
        "agent",
        "verifier",
        "environment",
        "solution",
        "steps",
        "source",
        "reward",
    }
)
TASK = frozenset({"name", "version", "description", "authors", "keywords"})
AGENT = frozenset({"timeout_sec", "user", "network_mode", "allowed_hosts"})
VERIFIER = frozenset(
    {
        "timeout_sec",
        "env",
        "user",
        "environment_mode",
        "environment",
        "collect",
        "network_mode",
        "allowed_hosts",
    }
)
ENVIRONMENT = frozenset(
    {
        "build_timeout_sec",
        "docker_image",
        "os",
        "cpus",
        "memory_mb",
        "storage_mb",
        "gpus",
        "gpu_types",
        "env",
        "workdir",
        "healthcheck",
        "mcp_servers",
        "skills_dir",
        "network_mode",
        "allowed_hosts",
        "memory",
        "storage",
        "allow_internet",
    }
)
HEALTHCHECK = frozenset(
    ["command", "interval_sec", "timeout_sec", "start_period_sec", "start_interval_sec", "retries"]
)
SOLUTION = frozenset({"env"})
STEP = frozenset({"name", "agent", "verifier", "min_reward", "healthcheck", "artifacts"})
KNOWN_SCHEMAS = ("1.0", "1.1", "1.2", "1.3", "1.4")

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def unknown_keys(table: str, found: dict[str, object], known: frozenset[str]) -> list[tuple[str, str]]:
    """Keys nobody reads, each with a sentence; misspelt limits must not vanish silently."""
    result = []
    for key in found:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            result.append((key, f"'{key}' is not a key of {table}{hint}"))
    return result


def size_bytes(value: object, where: str) -> int:
    """A size as older files write it: "2G", "512M", or plain bytes."""
    match = _SIZE.match(str(value))
    if not match:
        raise TaskError(f"{where}: {value!r} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * 1024 ** _POWER[match[2].lower()])
