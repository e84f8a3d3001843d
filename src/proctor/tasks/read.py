"""Read a task folder in Harbor's format, schema 1.0 to 1.4 and the older keys.

What the author wrote wrongly is named with file and line: a wrong type refuses the task, an unknown key
warns, because a misspelt limit that silently vanishes changes what is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import HOST_ROOT, MAIN_SERVICE, AgentLimits, Step, Task, TaskEnvironment, VerifierSpec
from proctor.tasks import parts
from proctor.tasks.digest import task_digest
from proctor.tasks.performance import performance_of
from proctor.tasks.toml_file import KNOWN_SCHEMAS, Table, TomlFile

_MAX_INSTRUCTION_BYTES = 4 << 20
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


def read_task(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder, or a TaskError that says what its author must fix."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder")
    file = folder / "task.toml"
    if not file.is_file():
        if (folder / "tb_meta.json").is_file():
            from proctor.tasks.prepared import read_prepared

            return read_prepared(folder, cache_dir)
        raise TaskError(f"{folder}: no task.toml; `proctor new task` creates one")
    if (folder / "actions.py").is_file() and not (folder / "instruction.md").exists():
        from proctor.tasks.episodes import read_episode

        return read_episode(folder, cache_dir)
    digest = task_digest(folder, cache_dir)
    return _known(folder, file, digest) if folder.is_absolute() else _Reader(folder, file).task(digest)


@lru_cache(maxsize=256)
def _known(folder: Path, file: Path, digest: str) -> Task:
    """The same content at the same place is the same task: a server is asked for a few of them all day."""
    return _Reader(folder, file).task(digest)


class _Reader(TomlFile):
    """One reading of one `task.toml`."""

    def __init__(self, folder: Path, file: Path) -> None:
        super().__init__(file)
        self.folder = folder

    def task(self, digest: str) -> Task:
        data, folder = self.data, self.folder
        self.known("task.toml", data)
        about = self.table(data, "task")
        self.known("[task]", about)
        schema = self.schema_version()
        environment = self.environment(self.table(data, "environment"), folder / "environment")
        steps = self.steps(environment)
        verifier = self.verifier(self.table(data, "verifier"), environment)
        if steps and verifier.performance:
            place = self.place("performance", self.table(data, "verifier"))
            raise TaskError(f"{place}: [verifier.performance] is for tasks without steps; remove one of them")
        tests = folder / "tests"
        if not steps and not verifier.bundled and not (tests / "test.sh").is_file():
            raise TaskError(f"{tests / 'test.sh'}: missing; without it nothing can be graded")
        strategy: Any = data.get("multi_step_reward_strategy") or "mean"
        if strategy not in {"mean", "final"}:
            raise self.wrong("multi_step_reward_strategy", strategy, "mean or final", data)
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
            verifier=verifier,
            solution_env=self.solution_env(),
            tests=tests if tests.is_dir() else None,
            solution=folder / "solution" if (folder / "solution" / "solve.sh").is_file() else None,
            trajectory=self.trajectory(steps),
            artifacts=parts.artifacts(self, data),
            steps=steps,
            reward_strategy=strategy,
            warnings=tuple(self.warnings),
        )

    def schema_version(self) -> str:
        found = str(self.data.get("schema_version", self.data.get("version", "1.0")))
        if found not in KNOWN_SCHEMAS:
            key = "schema_version" if "schema_version" in self.data else "version"
            known = ", ".join(KNOWN_SCHEMAS)
            self.warn(key, f"schema {found} is not one of {known}", self.data)
        return found

    def instruction(self, file: Path) -> str:
        try:
            text = read_small(file, _MAX_INSTRUCTION_BYTES).decode()
        except FileNotFoundError as error:
            raise TaskError(f"{file}: missing; the agent would not know what to do") from error
        except OSError as error:
            raise TaskError(f"{file}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise TaskError(f"{file}: not UTF-8 text") from error
        return without_canary(text)

    def trajectory(self, steps: tuple[Step, ...]) -> Path | None:
        folder = self.folder / "steps" / steps[0].name if steps else self.folder
        file = folder / "trajectory.json"
        return file if file.is_file() else None

    def solution_env(self) -> dict[str, str]:
        table = self.table(self.data, "solution")
        self.known("[solution]", table)
        return self.env(table, "[solution]")

    def steps(self, environment: TaskEnvironment) -> tuple[Step, ...]:
        names: set[str] = set()
        found = []
        for number, row in enumerate(self.tables(self.data, "steps"), 1):
            step = self.step(row, number, environment)
            key = parts.step_key(step.name)
            if key in names:
                raise self.wrong("name", step.name, "different in every step", row)
            names.add(key)
            found.append(step)
        return tuple(found)

    def step(self, row: Table, number: int, environment: TaskEnvironment) -> Step:
        where = f"[[steps]] {number}"
        self.known("[[steps]]", row, where)
        name = parts.step_name(self, row, where)
        folder = self.folder / "steps" / name
        own = self.table(row, "verifier")
        verifier = self.verifier(own, environment, step=name)
        tests = tuple(each for each in (self.folder / "tests", folder / "tests") if each.is_dir())
        if not verifier.bundled and not any((each / "test.sh").is_file() for each in tests):
            raise TaskError(f"{folder / 'tests/test.sh'}: missing; step '{name}' cannot be judged")
        return Step(
            name=name,
            instruction=self.instruction(folder / "instruction.md"),
            agent=self.agent(
                self.inherit(self.table(row, "agent"), self.table(self.data, "agent"), "[agent]"), where
            ),
            verifier=verifier,
            tests=tests,
            solution=folder / "solution" if (folder / "solution/solve.sh").is_file() else None,
            workdir=folder / "workdir" if (folder / "workdir").is_dir() else None,
            min_reward=parts.min_reward(self, row),
            healthcheck=parts.healthcheck(self, row),
            artifacts=parts.artifacts(self, row),
        )

    def inherit(self, own: Table, above: Mapping[str, Any], rules: str) -> Table:
        """A step's table, with what it leaves out taken from the task's."""
        self.known(rules, own, f"[{own.name}]")
        return self.named(parts.over(above, own), own.path)

    def agent(self, table: Mapping[str, Any], where: str) -> AgentLimits:
        if where == "[agent]":
            self.known(where, table)
        network = parts.network_of(self, table)
        return AgentLimits(
            timeout_s=self.positive(table, "timeout_sec", 600.0),
            user=_text(table.get("user")),
            network=network.network,
            allowed_hosts=network.allowed_hosts,
        )

    def verifier(self, own: Table, environment: TaskEnvironment, *, step: str | None = None) -> VerifierSpec:
        """The verifier of the task or of a step, which takes what it leaves out from the task's."""
        above = self.table(self.data, "verifier") if step else self.named({}, ())
        self.known("[verifier]", own, f"[{own.name}]")
        table = self.named(parts.over(above, own), own.path)
        definition = parts.definition_of(self, own, above, self.folder, step)
        network = parts.network_of(self, table)
        return VerifierSpec(
            timeout_s=self.positive(table, "timeout_sec", 600.0),
            env={**self.env(above, "[verifier]"), **self.env(own, "[verifier]")},
            user=_text(table.get("user")),
            separate=definition is not None,
            environment=self.own_environment(definition, environment) if definition else None,
            bundled=bool(definition and definition.image_from),
            collect=(*parts.collect(self, above), *parts.collect(self, own)),
            network=network.network,
            allowed_hosts=network.allowed_hosts,
            performance=None if step else performance_of(self, own, self.folder),
        )

    def own_environment(self, definition: parts.Definition, task: TaskEnvironment) -> TaskEnvironment | None:
        """What a separate verifier runs in: its own limits and variables, and its own image if it has one."""
        if not definition.table and not definition.image_from:
            return None
        base = self.environment(definition.table, self.folder) if definition.table else task
        if definition.image_from is None:
            return replace(
                base, image=task.image, folder=task.folder, dockerfile=task.dockerfile, compose=task.compose
            )
        folder = definition.image_from
        image = definition.image
        dockerfile = folder / "Dockerfile"
        return replace(
            base,
            image=image,
            folder=folder if folder.is_dir() else None,
            dockerfile=dockerfile if not image and dockerfile.is_file() else None,
            compose=None if image else _compose(folder),
        )

    def environment(self, table: Mapping[str, Any], folder: Path) -> TaskEnvironment:
        where = "[environment]"
        self.known(where, table)
        compose = _compose(folder)
        dockerfile = folder / "Dockerfile"
        image = _text(table.get("docker_image"))
        network = parts.network_of(self, table, environment=True)
        main = folder == self.folder / "environment"
        if main and not image and not compose and not dockerfile.is_file():
            self.warn(
                "environment",
                f"{folder} has no Dockerfile and no docker_image is named: it runs on {HOST_ROOT}",
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
            gpu_types=self.strings(table, "gpu_types"),
            tpu=parts.tpu(self, table),
            os=parts.operating_system(self, table),
            env=self.env(table, where),
            workdir=_text(table.get("workdir")),
            network=network.network or "public",
            allowed_hosts=network.allowed_hosts,
            healthcheck=parts.healthcheck(self, table),
            mcp_servers=parts.mcp_servers(self, table),
            skills_dir=_text(table.get("skills_dir")),
        )

    def env(self, table: Mapping[str, Any], where: str) -> dict[str, str]:
        found = self.table(table, "env")
        for key, value in found.items():
            if isinstance(value, dict | list):
                raise self.wrong(key, value, f"text in {where}.env", found)
        return {key: _env_text(value) for key, value in found.items()}


def without_canary(text: str) -> str:
    """An instruction without the comment lines at its top that mark a benchmark's data."""
    lines = text.split("\n")
    first = 0
    while first < len(lines) and _CANARY.fullmatch(lines[first].strip()):
        first += 1
    while first < len(lines) and not lines[first].strip():
        first += 1
    return "\n".join(lines[first:])


def _compose(folder: Path) -> Path | None:
    return next((folder / name for name in _COMPOSE if (folder / name).is_file()), None)


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _env_text(value: object) -> str:
    """As a shell would have it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_runnable(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder; TaskError when it is wrong, or asks for what cannot be given."""
    task = read_task(folder, cache_dir)
    for reason in refusals(task):
        raise TaskError(reason)
    return task


def refusals(task: Task) -> Iterator[str]:
    """Every reason why a task cannot be run, with its file."""
    file = task.path / "task.toml"
    verifiers = (task.verifier, *(step.verifier for step in task.steps))
    environments = [task.environment, *(each.environment for each in verifiers if each.environment)]
    for reason in dict.fromkeys(each for place in environments for each in _lacking(place)):
        yield f"{file}: {reason}"
    if task.verifier.performance and task.environment.compose:
        yield f"{file}: [verifier.performance] needs sandboxes that can be made again, not compose services"
    services = {
        *(each.service for each in (*task.artifacts, *(a for step in task.steps for a in step.artifacts))),
        *(hook.service for each in verifiers for hook in each.collect),
    } - {MAIN_SERVICE}
    if services and task.environment.compose is None:
        names = f"it collects files from services ({', '.join(sorted(services))})"
        yield f"{file}: {names}, and environment/ has no docker-compose.yaml"


def _lacking(environment: TaskEnvironment) -> Iterator[str]:
    if environment.os == "windows":
        needs = "os = 'windows' needs Windows containers, which Proctor does not run"
        yield f"{needs}; only Linux tasks can be run"
    if environment.gpus:
        count = f"{environment.gpus} GPU{'s' * (environment.gpus > 1)}"
        yield f"it asks for {count}, and Proctor's sandboxes have none; set gpus = 0 if it can do without"
    if environment.tpu:
        yield f"it asks for a TPU ({environment.tpu}), and Proctor's sandboxes have none"
