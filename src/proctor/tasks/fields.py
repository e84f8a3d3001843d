"""Harbor's task format as one table: every key of `task.toml` and every file, and what Proctor does with it.

The reader warns about keys that are not here, the reference page is written from here, and a test tries
every row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from proctor.errors import TaskError

Status = Literal["honoured", "refused", "irrelevant"]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What Proctor does with one key or file."""

    status: Status
    """`refused`: the task is read, and is not run; `irrelevant`: nothing that a run depends on."""
    meaning: str


def _honoured(meaning: str) -> FieldRule:
    return FieldRule("honoured", meaning)


def _refused(meaning: str) -> FieldRule:
    return FieldRule("refused", meaning)


def _irrelevant(meaning: str) -> FieldRule:
    return FieldRule("irrelevant", meaning)


_SECTION = "see its own table"
_ABOUT = "a description for people; shown by tools that list tasks"

TABLES: Mapping[str, Mapping[str, FieldRule]] = {
    "task.toml": {
        "schema_version": _honoured("1.0 to 1.4; another version is a warning"),
        "version": _honoured("the older name of `schema_version`"),
        "task": _honoured(_SECTION),
        "metadata": _irrelevant("free for the author; nothing reads it"),
        "agent": _honoured(_SECTION),
        "verifier": _honoured(_SECTION),
        "environment": _honoured(_SECTION),
        "solution": _honoured(_SECTION),
        "steps": _honoured(_SECTION),
        "artifacts": _honoured("paths to keep, each a text or a table"),
        "multi_step_reward_strategy": _honoured(
            "`mean` (default) of the steps that were judged, or `final`: the last step that was judged"
        ),
        "source": _irrelevant("where the task came from"),
    },
    "[task]": {
        "name": _honoured("the name in reports; Harbor accepts only `org/name`, Proctor any text"),
        "version": _irrelevant(_ABOUT),
        "description": _irrelevant(_ABOUT),
        "authors": _irrelevant(_ABOUT),
        "keywords": _irrelevant(_ABOUT),
    },
    "[agent]": {
        "timeout_sec": _honoured("time limit of the agent; without it 600 s (Harbor: no limit)"),
        "user": _honoured("the user who runs the agent, a name or a number; default: the image's user"),
        "network_mode": _honoured("network of the agent: `public`, `no-network` or `allowlist`"),
        "allowed_hosts": _honoured("what `allowlist` allows"),
    },
    "[verifier]": {
        "timeout_sec": _honoured(
            "time limit of the tests; default 600 s. A step without it takes the task's"
        ),
        "env": _honoured("variables of the tests; a step's are added to the task's"),
        "user": _honoured("the user who runs the tests; default: the image's user"),
        "environment_mode": _honoured(
            "`shared` (default): the tests run in the agent's sandbox; `separate`: in a fresh one that gets "
            "`/logs/artifacts` and the declared artifacts, and nothing else of the agent's"
        ),
        "environment": _honoured("as `[environment]`, for the separate verifier; implies `separate`"),
        "collect": _honoured("commands to run after the agent and before artifacts are taken"),
        "network_mode": _honoured("network of the tests"),
        "allowed_hosts": _honoured("what `allowlist` allows"),
    },
    "[[verifier.collect]]": {
        "command": _honoured("a command line for the shell; a failure is noted and does not end the attempt"),
        "service": _honoured("the compose service to run it in, default `main`"),
        "timeout_sec": _honoured("time limit, default 60 s"),
        "user": _honoured("the user who runs it; default: the service's own"),
    },
    "[environment]": {
        "build_timeout_sec": _honoured("time limit for making the image, default 600 s"),
        "docker_image": _honoured(
            "a ready image; without a Dockerfile, `environment/` goes into the workdir"
        ),
        "os": _refused(
            "`linux` is the default; `windows` needs Windows containers, which Proctor does not run"
        ),
        "cpus": _honoured("processors"),
        "memory_mb": _honoured("memory, megabytes"),
        "storage_mb": _honoured("disk, megabytes"),
        "gpus": _refused("0 is accepted; more is refused, because the sandboxes have no GPU"),
        "gpu_types": _irrelevant("says which GPU `gpus` means; a task with `gpus` is refused"),
        "tpu": _refused("the sandboxes have no TPU"),
        "mcp_servers": _honoured("tool servers: agents find them in their context, commands in a variable"),
        "env": _honoured(
            "variables; a value that is `${VAR}` or `${VAR:-default}` is a variable of this machine, which "
            "the spec must grant with [`pass_env`](../how-to/secrets.md)"
        ),
        "skills_dir": _honoured("folder of skills inside: agents find it in their context"),
        "healthcheck": _honoured("must succeed before the agent starts"),
        "workdir": _honoured("the working folder; default: the image's"),
        "network_mode": _honoured("`public` (default), `no-network` or `allowlist`"),
        "allowed_hosts": _honoured("what `allowlist` allows"),
        "allow_internet": _honoured("the older form of `network_mode`: true is `public`, false `no-network`"),
        "memory": _honoured("the older form of `memory_mb`: `2G`, `512M`"),
        "storage": _honoured("the older form of `storage_mb`"),
    },
    "[environment.healthcheck]": {
        "command": _honoured("a command line for the shell; exit code 0 is healthy"),
        "interval_sec": _honoured("pause between two attempts, default 5 s"),
        "timeout_sec": _honoured("time limit of one attempt, default 30 s"),
        "start_period_sec": _honoured("time in which failures do not count, default 0 s"),
        "start_interval_sec": _honoured("pause between two attempts in that time, default 5 s"),
        "retries": _honoured("failures until the attempt ends as `sandbox_error`, default 3"),
    },
    "[[environment.mcp_servers]]": {
        "name": _honoured("its name"),
        "transport": _honoured("`sse` (default), `streamable-http` (or `http`), `stdio`"),
        "url": _honoured("address, for `sse` and `streamable-http`"),
        "command": _honoured("program, for `stdio`"),
        "args": _honoured("arguments of the program"),
    },
    "[environment.tpu]": {
        "type": _refused("see `tpu`"),
        "topology": _refused("see `tpu`"),
    },
    "[solution]": {
        "env": _honoured("variables of `solve.sh`, with `${VAR}` looked up as in `[environment]`"),
    },
    "[[steps]]": {
        "name": _honoured("the folder below `steps/`; unique, also when capitals are ignored"),
        "agent": _honoured("as `[agent]`; what it leaves out comes from there"),
        "verifier": _honoured("as `[verifier]`; what it leaves out comes from there"),
        "min_reward": _honoured("a number, or a table of parts; below it the later steps are not tried"),
        "healthcheck": _honoured("as `[environment.healthcheck]`, before the step's agent starts"),
        "artifacts": _honoured("kept after this step, besides the task's"),
    },
    "[[artifacts]]": {
        "source": _honoured("a file or folder inside"),
        "destination": _honoured("its path among the kept files; default: the source's own"),
        "exclude": _honoured("patterns that are left out of a folder"),
        "service": _honoured("the compose service that has it, default `main`"),
    },
}

FILES: Mapping[str, FieldRule] = {
    "task.toml": _honoured("makes a folder a task"),
    "instruction.md": _honoured(
        "the instruction for the agent; comment lines with a canary at its top are left out"
    ),
    "trajectory.json": _honoured("earlier work in ATIF; agents find it in their context"),
    "environment/Dockerfile": _honoured("the image; `environment/` is the build context"),
    "environment/docker-compose.yaml": _honoured("services; `main` is the agent's sandbox"),
    "environment/…": _honoured("with `docker_image` and no Dockerfile: copied into the working folder"),
    "tests/test.sh": _honoured("judges; runs at `/tests` after the agent has ended"),
    "tests/Dockerfile": _honoured("image of a separate verifier, which then holds `/tests` itself"),
    "tests/docker-compose.yaml": _honoured("services of a separate verifier"),
    "solution/solve.sh": _honoured("the author's solution; the oracle runs it at `/solution`"),
    "steps/<name>/instruction.md": _honoured("the instruction for the agent in this step"),
    "steps/<name>/tests/": _honoured("copied over the task's `tests/`: files of the same name win"),
    "steps/<name>/solution/solve.sh": _honoured("instead of the task's `solution/`"),
    "steps/<name>/workdir/": _honoured("copied into the working folder before the step"),
    "steps/<name>/workdir/setup.sh": _honoured("runs there, as the agent's user, before the step"),
    "steps/<name>/trajectory.json": _honoured("as `trajectory.json`; only the first step's is used"),
    "tests/test.bat": _refused("Windows containers are not run"),
    "solution/solve.bat": _irrelevant("for Windows containers, which are not run"),
    "README.md": _irrelevant("for people"),
    ".gitignore": _irrelevant("Harbor leaves these files out when it publishes a task"),
    ".harborignore": _honoured("Proctor's own: files that are not part of the task's digest"),
    "overrides.json": _honoured("Proctor's own: changes to the task, see the decision on overrides"),
    "tb_meta.json": _honoured("Proctor's own: a prepared repository task instead of `task.toml`"),
    "environment/singularity-compose.yaml": _irrelevant("for another sandbox than Proctor's"),
}
KNOWN_SCHEMAS = ("1.0", "1.1", "1.2", "1.3", "1.4")

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*$", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def unknown_keys(table: str, found: Mapping[str, object], shown: str = "") -> list[tuple[str, str]]:
    """Unknown keys, each with a message; misspelt limits must not be ignored silently."""
    known = TABLES[table]
    result = []
    for key in found:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else _elsewhere(key, table)
            result.append((key, f"'{key}' is not a key of {shown or table}{hint}"))
    return result


def _elsewhere(key: str, table: str) -> str:
    """Where a key that is in the wrong table belongs."""
    places = [name for name, rules in TABLES.items() if key in rules and name != table]
    return f"; it belongs in {places[0]}" if places else ""


def size_bytes(value: object, where: str) -> int:
    """A size as older files write it: "2G", "512M", or plain bytes."""
    match = _SIZE.match(str(value))
    if not match:
        raise TaskError(f"{where}: {value!r} is not a size; write 512M, 2G or a number of bytes")
    return int(float(match[1]) * 1024 ** _POWER[match[2].lower()])
