"""Read a task folder in Harbor's format, schema 1.0 to 1.4 and the older keys.

What the author wrote wrongly is named with file and line: a wrong type refuses the task, an unknown key
warns, because a misspelt limit that silently vanishes changes what is measured.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.errors import TaskError
from proctor.model.task import AgentLimits, Healthcheck, Network, Step, Task, TaskEnvironment, VerifierSpec
from proctor.tasks import fields
from proctor.tasks.digest import task_digest

_MAX_TOML_BYTES = 1 << 20
_MAX_INSTRUCTION_BYTES = 4 << 20
_CANARY = re.compile(r"\A(?:\s*(?:<!--.*?-->|#[^\n]*canary[^\n]*)\s*\n?)+", re.DOTALL | re.IGNORECASE)
_NETWORKS: dict[str, Network] = {
    "no-network": "none",
    "none": "none",
    "public": "public",
    "allowlist": "allowlist",
}
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


def read_task(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder, or a TaskError that says what its author must mend."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder")
    file = folder / "task.toml"
    if not file.is_file():
        if (folder / "tb_meta.json").is_file():
            from proctor.tasks.prepared import read_prepared

            return read_prepared(folder, cache_dir)
        raise TaskError(f"{folder}: no task.toml; `proctor new task` makes a folder to start from")
    return _Reader(folder, file).task(task_digest(folder, cache_dir))


class _Reader:
    """One reading of one `task.toml`: collects warnings, knows lines."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder = folder
        self.file = file
        self.warnings: list[str] = []
        try:
            raw = file.read_bytes()
            if len(raw) > _MAX_TOML_BYTES:
                raise TaskError(f"{file}: {len(raw)} bytes; a task.toml is a small file")
            self.text = raw.decode()
            self.data = tomllib.loads(self.text)
        except UnicodeDecodeError as error:
            raise TaskError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from error
        except tomllib.TOMLDecodeError as error:
            raise TaskError(f"{file}: not valid TOML: {error}") from error

    def task(self, digest: str) -> Task:
        data, folder = self.data, self.folder
        self.known("task.toml", data, fields.ROOT)
        about = self.table(data, "task")
        self.known("[task]", about, fields.TASK)
        schema = self.schema_version()
        steps = self.steps()
        tests = folder / "tests"
        if not steps and not (tests / "test.sh").is_file():
            raise TaskError(f"{tests / 'test.sh'}: missing; without it nothing can be judged")
        environment = self.environment(self.table(data, "environment"), folder / "environment")
        strategy = data.get("multi_step_reward_strategy", "mean")
        if strategy not in {"mean", "final"}:
            raise self.wrong("multi_step_reward_strategy", strategy, "mean or final")
        return Task(
            name=str(about.get("name") or folder.resolve().name),
            path=folder,
            digest=digest,
            schema_version=schema,
            version=str(about.get("version", "")),
            description=str(about.get("description", "")),
            keywords=self.strings(about, "keywords"),
            metadata=self.table(data, "metadata"),
            instruction="" if steps else self.instruction(folder / "instruction.md"),
            environment=environment,
            agent=self.agent(self.table(data, "agent"), "[agent]"),
            verifier=self.verifier(self.table(data, "verifier"), "[verifier]"),
            solution_env=self.env(self.table(data, "solution"), "[solution]"),
            tests=tests if tests.is_dir() else None,
            solution=folder / "solution" if (folder / "solution" / "solve.sh").is_file() else None,
            artifacts=self.strings(data, "artifacts"),
            steps=steps,
            reward_strategy=strategy,
            warnings=tuple(self.warnings),
        )

    def schema_version(self) -> str:
        found = str(self.data.get("schema_version", self.data.get("version", "1.0")))
        if found not in fields.KNOWN_SCHEMAS:
            self.warn("schema_version", f"schema {found} is not one of {', '.join(fields.KNOWN_SCHEMAS)}")
        return found

    def instruction(self, file: Path) -> str:
        try:
            if file.stat().st_size > _MAX_INSTRUCTION_BYTES:
                raise TaskError(f"{file}: larger than {_MAX_INSTRUCTION_BYTES} bytes")
            text = file.read_text()
        except FileNotFoundError as error:
            raise TaskError(f"{file}: missing; the agent would not know what to do") from error
        except UnicodeDecodeError as error:
            raise TaskError(f"{file}: not UTF-8 text") from error
        return _CANARY.sub("", text)

    def steps(self) -> tuple[Step, ...]:
        rows = self.data.get("steps", [])
        if not isinstance(rows, list):
            raise self.wrong("steps", rows, "a list of tables")
        return tuple(self.step(row, number) for number, row in enumerate(rows, 1))

    def step(self, row: Mapping[str, Any], number: int) -> Step:
        where = f"[[steps]] {number}"
        if not isinstance(row, dict):
            raise self.wrong("steps", row, "a table")
        self.known(where, row, fields.STEP)
        name = row.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
            raise self.wrong("name", name, f"a plain word in {where}")
        folder = self.folder / "steps" / name
        tests = folder / "tests" if (folder / "tests/test.sh").is_file() else self.folder / "tests"
        if not (tests / "test.sh").is_file():
            raise TaskError(f"{folder / 'tests/test.sh'}: missing; step '{name}' cannot be judged")
        return Step(
            name=name,
            instruction=self.instruction(folder / "instruction.md"),
            agent=self.agent({**self.table(self.data, "agent"), **self.table(row, "agent")}, where),
            verifier=self.verifier(
                {**self.table(self.data, "verifier"), **self.table(row, "verifier")}, where
            ),
            tests=tests,
            solution=folder / "solution" if (folder / "solution/solve.sh").is_file() else None,
            min_reward=self.number(row, "min_reward"),
            healthcheck=self.healthcheck(row),
            artifacts=self.strings(row, "artifacts"),
        )

    def agent(self, table: Mapping[str, Any], where: str) -> AgentLimits:
        self.known(where, table, fields.AGENT)
        return AgentLimits(
            timeout_s=self.positive(table, "timeout_sec", 600.0),
            user=_text(table.get("user")),
            network=self.network(table),
            allowed_hosts=self.strings(table, "allowed_hosts"),
        )

    def verifier(self, table: Mapping[str, Any], where: str) -> VerifierSpec:
        self.known(where, table, fields.VERIFIER)
        mode = table.get("environment_mode", "shared")
        if mode not in {"shared", "separate"}:
            raise self.wrong("environment_mode", mode, "shared or separate")
        own = self.table(table, "environment")
        return VerifierSpec(
            timeout_s=self.positive(table, "timeout_sec", 600.0),
            env=self.env(table, where),
            user=_text(table.get("user")),
            separate=mode == "separate",
            environment=self.environment(own, self.folder / "tests") if own else None,
            collect=self.collect(table),
        )

    def collect(self, table: Mapping[str, Any]) -> tuple[str, ...]:
        rows = table.get("collect", [])
        if not isinstance(rows, list):
            raise self.wrong("collect", rows, "a list")
        return tuple(str(row.get("command", "")) if isinstance(row, dict) else str(row) for row in rows)

    def environment(self, table: Mapping[str, Any], folder: Path) -> TaskEnvironment:
        where = "[environment]"
        self.known(where, table, fields.ENVIRONMENT)
        compose = next((folder / name for name in _COMPOSE if (folder / name).is_file()), None)
        dockerfile = folder / "Dockerfile"
        image = _text(table.get("docker_image"))
        if not image and not compose and not dockerfile.is_file():
            self.warn(
                "environment",
                f"{folder} has no Dockerfile and no docker_image is named: the host's system is used",
            )
        return TaskEnvironment(
            build_timeout_s=self.positive(table, "build_timeout_sec", 600.0),
            image=image,
            folder=folder if folder.is_dir() else None,
            dockerfile=dockerfile if dockerfile.is_file() else None,
            compose=compose,
            cpus=self.number(table, "cpus"),
            memory_bytes=self.size(table, "memory_mb", "memory"),
            storage_bytes=self.size(table, "storage_mb", "storage"),
            gpus=int(self.number(table, "gpus") or 0),
            env=self.env(table, where),
            workdir=_text(table.get("workdir")),
            network=self.network(table),
            allowed_hosts=self.strings(table, "allowed_hosts"),
            healthcheck=self.healthcheck(table),
            mcp_servers=tuple(table.get("mcp_servers", ())),
            skills_dir=_text(table.get("skills_dir")),
        )

    def healthcheck(self, table: Mapping[str, Any]) -> Healthcheck | None:
        found = self.table(table, "healthcheck")
        if not found:
            return None
        self.known("healthcheck", found, fields.HEALTHCHECK)
        if not isinstance(found.get("command"), str):
            raise self.wrong("command", found.get("command"), "a command line")
        return Healthcheck(
            command=found["command"],
            interval_s=self.positive(found, "interval_sec", 5.0),
            timeout_s=self.positive(found, "timeout_sec", 30.0),
            start_period_s=self.number(found, "start_period_sec") or 0.0,
            retries=int(self.positive(found, "retries", 3)),
        )

    def network(self, table: Mapping[str, Any]) -> Network | None:
        mode = table.get("network_mode")
        if mode is None:
            allowed = table.get("allow_internet")
            return None if allowed is None else ("public" if allowed else "none")
        if mode not in _NETWORKS:
            raise self.wrong("network_mode", mode, "public, no-network or allowlist")
        return _NETWORKS[mode]

    def env(self, table: Mapping[str, Any], where: str) -> dict[str, str]:
        found = self.table(table, "env")
        for key, value in found.items():
            if isinstance(value, dict | list):
                raise self.wrong(key, value, f"text in {where}.env")
        return {key: _env_text(value) for key, value in found.items()}

    def table(self, data: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = data.get(key, {})
        if not isinstance(found, dict):
            raise self.wrong(key, found, "a table")
        return found

    def strings(self, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        found = data.get(key, [])
        if not isinstance(found, list):
            raise self.wrong(key, found, "a list of texts")
        return tuple(str(each.get("source", each)) if isinstance(each, dict) else str(each) for each in found)

    def number(self, data: Mapping[str, Any], key: str) -> float | None:
        found = data.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
            raise self.wrong(key, found, "a number, zero or more")
        return float(found)

    def positive(self, data: Mapping[str, Any], key: str, default: float) -> float:
        found = self.number(data, key)
        if found is None:
            return default
        if found == 0:
            raise self.wrong(key, found, "more than zero")
        return found

    def size(self, data: Mapping[str, Any], megabytes: str, legacy: str) -> int | None:
        found = self.number(data, megabytes)
        if found is not None:
            return int(found * 1024 * 1024)
        return fields.size_bytes(data[legacy], f"{self.place(legacy)}") if legacy in data else None

    def known(self, table: str, found: Mapping[str, Any], known: frozenset[str]) -> None:
        for key, sentence in fields.unknown_keys(table, dict(found), known):
            self.warn(key, sentence)

    def warn(self, key: str, sentence: str) -> None:
        text = f"{self.place(key)}: {sentence}"
        if text not in self.warnings:
            self.warnings.append(text)

    def wrong(self, key: str, found: object, wanted: str) -> TaskError:
        return TaskError(f"{self.place(key)}: '{key}' must be {wanted}, not {found!r}")

    def place(self, key: str) -> str:
        """`task.toml:12` where the key stands; the file alone when it does not."""
        pattern = re.compile(rf"^\s*\[*\s*(?:[\w.]+\.)?[\"']?{re.escape(key)}[\"']?\s*[\]=.]")
        for number, line in enumerate(self.text.splitlines(), 1):
            if pattern.match(line):
                return f"{self.file}:{number}"
        return str(self.file)


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _env_text(value: object) -> str:
    """As a shell would have it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
