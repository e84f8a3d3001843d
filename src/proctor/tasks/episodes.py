"""Read a task of the step-by-step kind: `task.toml` beside `setup.py`, `actions.py` and `validate.py`.

Its agent is asked for one action at a time, the task executes it and judges after each one. Nothing of the
task's code is run here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.errors import TaskError
from proctor.model.network import wrong_host
from proctor.model.task import AgentLimits, EpisodeSpec, Network, Task, TaskEnvironment, VerifierSpec
from proctor.spec.node import nearest
from proctor.tasks.digest import task_digest
from proctor.tasks.toml_file import TomlFile

TABLES: Mapping[str, Mapping[str, str]] = {
    "": {
        "id": "the name of the task; letters, digits, `-` and `_`",
        "suite": "for people: what the task belongs to",
        "version": "compared with the `@version` of a `task_ref`",
        "description": "what the agent is told to do",
        "deterministic": "`true` (default): the programs of an episode hash with its seed",
        "seed_behavior": "for people: `fixed`, `stochastic` or `ignored`",
    },
    "budgets": {
        "steps": "how often the agent may act",
        "tool_calls": "how many of its actions are executed",
    },
    "action_surface": {
        "source": "the file whose functions are the actions; `actions.py`",
        "schema": "`introspected`: the parameters of the functions are the arguments, all of them needed",
    },
    "validator": {"entrypoint": "file and function, `validate.py:validate`"},
    "setup": {"entrypoint": "file and function, `setup.py:setup`"},
    "sandbox": {
        "filesystem_roots": "folders of the environment that actions may use; none without it",
        "network_hosts": "hosts that actions may reach: `name`, `*.domain`, or `*` for all; none without it",
    },
    "environment": {
        "docker_image": "the image that has the task's Python; an `environment/Dockerfile` works too"
    },
}
"""Table of `task.toml` → key → its meaning."""
_REQUIRED = ("id", "version", "description")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.py")
_MOST_ACTIONS = 1_000_000
SETUP_TIMEOUT_S = 120.0


def read_episode(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder with `actions.py`."""
    return _Reader(folder).task(task_digest(folder, cache_dir))


class _Reader(TomlFile):
    """One reading of one `task.toml`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "task.toml")
        self.folder = folder

    def task(self, digest: str) -> Task:
        data = self.data
        self._warn_unknown()
        for key in _REQUIRED:
            if key not in data:
                raise TaskError(f"{self.file}: '{key}' is missing")
        name = data["id"]
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise self.wrong("id", name, "letters, digits, '-' and '_'", data)
        description = data["description"]
        if not isinstance(description, str):
            raise self.wrong("description", description, "a text", data)
        episode = self._episode()
        return Task(
            name=name,
            path=self.folder,
            digest=digest,
            kind="episode",
            version=str(data["version"]),
            description=description,
            metadata={key: data[key] for key in ("suite", "seed_behavior") if key in data},
            instruction=description.strip(),
            environment=self._environment(),
            agent=AgentLimits(network="none"),
            verifier=self._verifier(episode),
            episode=episode,
            warnings=tuple(self.warnings),
        )

    def _warn_unknown(self) -> None:
        for name, keys in TABLES.items():
            table = self.table(self.data, name) if name else self.data
            known = keys if name else {**keys, **TABLES}
            for key in table:
                if key not in known:
                    where = f"[{name}]" if name else "task.toml"
                    self.warn(key, f"'{key}' is not a key of {where}{nearest(key, known)}", table)

    def _episode(self) -> EpisodeSpec:
        data = self.data
        budgets, surface = self.table(data, "budgets"), self.table(data, "action_surface")
        sandbox = self.table(data, "sandbox")
        if (schema := surface.get("schema", "introspected")) != "introspected":
            raise self.wrong("schema", schema, "'introspected'", surface)
        deterministic = data.get("deterministic", True)
        if not isinstance(deterministic, bool):
            raise self.wrong("deterministic", deterministic, "true or false", data)
        return EpisodeSpec(
            id=str(data["id"]),
            steps=self._budget(budgets, "steps"),
            tool_calls=self._budget(budgets, "tool_calls"),
            setup=self._entrypoint("setup"),
            actions=self._source(surface, "source", str(surface.get("source", "actions.py"))),
            validator=self._entrypoint("validator"),
            filesystem_roots=self.strings(sandbox, "filesystem_roots"),
            network_hosts=self._hosts(sandbox),
            deterministic=deterministic,
        )

    def _budget(self, table: Mapping[str, Any], key: str) -> int:
        found = table.get(key)
        if found is None:
            raise TaskError(f"{self.file}: [budgets] has no '{key}': how many there may be")
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _MOST_ACTIONS:
            raise self.wrong(key, found, f"a whole number from 1 to {_MOST_ACTIONS:,}", table)
        return found

    def _entrypoint(self, table: str) -> tuple[str, str]:
        """`file.py:function`; the function has the usual name where it is left out."""
        found = self.table(self.data, table)
        usual = "validate" if table == "validator" else table
        text = str(found.get("entrypoint", f"{usual}.py"))
        file, _, function = text.partition(":")
        if function and not function.isidentifier():
            raise self.wrong("entrypoint", text, "file.py:function", found)
        return self._source(found, "entrypoint", file), function or usual

    def _source(self, table: Mapping[str, Any], key: str, name: str) -> str:
        if not _FILE.fullmatch(name):
            raise self.wrong(key, name, "a Python file of this folder", table)
        if not (self.folder / name).is_file():
            raise TaskError(f"{self.folder / name}: missing; the task cannot be run without it")
        return name

    def _hosts(self, table: Mapping[str, Any]) -> tuple[str, ...]:
        hosts = self.strings(table, "network_hosts")
        for host in hosts:
            if host != "*" and (problem := wrong_host(host)):
                raise TaskError(f"{self.place('network_hosts', table)}: {problem}")
        return hosts

    def _verifier(self, episode: EpisodeSpec) -> VerifierSpec:
        """The actions run where the validator does: what they may reach, it may reach."""
        network: Network = "none"
        if episode.network_hosts:
            network = "public" if "*" in episode.network_hosts else "allowlist"
        hosts = episode.network_hosts if network == "allowlist" else ()
        return VerifierSpec(timeout_s=SETUP_TIMEOUT_S, network=network, allowed_hosts=hosts)

    def _environment(self) -> TaskEnvironment:
        image = self.table(self.data, "environment").get("docker_image")
        if image is not None and not isinstance(image, str):
            raise self.wrong(
                "docker_image", image, "the name of an image", self.table(self.data, "environment")
            )
        folder = self.folder / "environment"
        dockerfile = folder / "Dockerfile"
        return TaskEnvironment(
            image=image or None,
            folder=folder if dockerfile.is_file() else None,
            dockerfile=dockerfile if dockerfile.is_file() else None,
            network="none",
        )
