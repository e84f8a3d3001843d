"""The options that say what to run: a spec file, or tasks and agents without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from proctor.model.spec import Spec
    from proctor.model.task import Network
    from proctor.runs.suites import SuiteRequest

EXAMPLE = "proctor run -t tasks/hello -a oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRequest:
    """What the person asked to have run."""

    spec_file: Path | None
    pytest_paths: tuple[str, ...]
    asv_paths: tuple[str, ...]
    python: str | None
    tasks: tuple[str, ...]
    datasets: tuple[str, ...]
    agents: tuple[str, ...]
    models: tuple[str, ...]
    rollouts: int | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    env: tuple[str, ...]
    agent_options: tuple[str, ...]
    pass_env: tuple[str, ...]
    name: str | None
    timeout_s: float | None
    parallel: int | None
    host_root: bool
    network: Network | None
    overrides: tuple[str, ...]
    sources: tuple[str, ...]
    print_spec: bool

    def spec(self) -> Spec:
        """The spec, from the file or from the options. Options that hold for both are applied to both."""
        from dataclasses import replace

        from proctor.runs.planning import with_host_root, with_network, with_pass_env, with_sources
        from proctor.spec.load import load

        self._check()
        if self.spec_file:
            read = load(self.spec_file, overrides=self.overrides, granted=self.pass_env)
            loaded = with_pass_env(read, self.pass_env) if self.pass_env else read
        elif self.suites:
            return self._suite()
        else:
            loaded = self._one_line()
        spec = with_sources(loaded, self.sources)
        if self.host_root:
            spec = with_host_root(spec)
        if self.network:
            spec = with_network(spec, self.network)
        return replace(spec, parallel=self.parallel) if self.parallel else spec

    def written(self, spec: Spec) -> dict[str, Any]:
        """What is kept as the written spec: the file's text as data, or what the options mean."""
        from proctor.spec.command_line import short_mapping
        from proctor.spec.load import written
        from proctor.spec.secrets import hidden

        return hidden(written(self.spec_file), spec.secrets) if self.spec_file else short_mapping(spec)

    @property
    def suites(self) -> SuiteRequest | None:
        """The suites of other tools that are to be run."""
        if not (self.pytest_paths or self.asv_paths or self.python):
            return None
        from proctor.runs.suites import request_from

        return request_from(self.pytest_paths, self.asv_paths, self.python, self.include, self.exclude)

    def _suite(self) -> Spec:
        from dataclasses import replace

        from proctor.runs.suites import read_suite

        assert self.suites is not None
        suite = read_suite(self.suites)
        for each in (*suite.broken, *suite.notes):
            click.echo(f"note: {each}", err=True)
        spec = suite.spec(self.name or "", self.overrides)
        timeout_s = self.timeout_s or spec.timeout_s
        return replace(spec, timeout_s=timeout_s, parallel=self.parallel or spec.parallel)

    def _check(self) -> None:
        one_line = [each for each in _ONE_LINE if getattr(self, each)]
        if self.spec_file and self.tasks and self.spec_file.exists() and not self.spec_file.is_file():
            raise click.UsageError(f"give every path its own -t: -t {self.tasks[0]} -t {self.spec_file}")
        if self.spec_file and one_line:
            option = _ONE_LINE[one_line[0]]
            hint = (
                "give a SPEC file or -t/-d" if option in {"-t", "-d"} else "change a file's keys with --set"
            )
            raise click.UsageError(f"{option} cannot be combined with the file {self.spec_file}; {hint}")
        if self.suites:
            self._check_suite()
            return
        if self.spec_file:
            return
        if not self.tasks and not self.datasets:
            raise click.UsageError(f"nothing to run: give a SPEC file, or tasks and an agent: {EXAMPLE}")
        if not self.agents:
            from proctor.agents.registry import known_agents

            raise click.UsageError(f"-a is missing: which agent? Known agents: {', '.join(known_agents())}")

    def _check_suite(self) -> None:
        allowed = {"include", "exclude", "name", "timeout_s"}
        others = ["a SPEC file"] if self.spec_file else []
        others += [
            option for field, option in _ONE_LINE.items() if getattr(self, field) and field not in allowed
        ]
        if others:
            raise click.UsageError(f"--pytest and --asv cannot be combined with {others[0]}")

    def _one_line(self) -> Spec:
        from proctor.spec.command_line import pairs, spec_mapping
        from proctor.spec.load import from_mapping
        from proctor.spec.override import typed_value

        options = pairs("--agent-option", self.agent_options)
        data = spec_mapping(
            self.tasks,
            self.datasets,
            agent=self.agents,
            model=self.models,
            rollouts=self.rollouts,
            include=self.include,
            exclude=self.exclude,
            environment_variables=pairs("--env", self.env),
            agent_options={
                key: typed_value(f"--agent-option {key}", value) for key, value in options.items()
            },
            pass_env=self.pass_env,
            name=self.name,
            timeout_s=self.timeout_s,
        )
        return from_mapping(data, base_dir=str(Path.cwd()), overrides=self.overrides, environ=os.environ)


_ONE_LINE = {
    "tasks": "-t",
    "datasets": "-d",
    "agents": "-a",
    "models": "-m",
    "rollouts": "-n",
    "include": "--include",
    "exclude": "--exclude",
    "env": "--env",
    "agent_options": "--agent-option",
    "name": "--name",
    "timeout_s": "--timeout-s",
}
"""Field → option, for those that replace a file."""

_many = partial(click.option, multiple=True)
takes_sources = _many(
    "--experiments", "sources", metavar="DIR_OR_MODULE", help="Folder or module with more experiments."
)
takes_pass_env = _many(
    "--pass-env",
    metavar="NAME",
    help="An environment variable of this machine that the tasks may use as ${NAME}.",
)
takes_host_root = click.option(
    "--host-root",
    is_flag=True,
    help="Use this machine's own system in place of every image; not reproducible elsewhere.",
)
takes_network = click.option(
    "--network",
    type=click.Choice(["none", "public", "allowlist"]),
    help="The network of every task, whatever the task says.",
)
SUITE_OPTIONS = (
    _many(
        "--pytest",
        "pytest_paths",
        metavar="PATH",
        help="Tests that use pytest-benchmark's fixture: a file, a folder, or FILE::TEST.",
    ),
    _many(
        "--asv", "asv_paths", metavar="PATH", help="An asv suite: its folder, a file of it, or asv.conf.json."
    ),
    click.option("--python", metavar="PATH", help="The suite's interpreter or environment. [Proctor's own]"),
)
takes_datasets = _many(
    *("-d", "--dataset", "datasets"),
    metavar="NAME@VERSION",
    help="A dataset of a registry, or git+https://HOST/REPO.git@COMMIT#PATH.",
)
_OPTIONS = (
    click.argument("spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path)),
    *SUITE_OPTIONS,
    _many("-t", "--tasks", metavar="PATH", help="A task folder, a folder of tasks, or a ZIP."),
    takes_datasets,
    _many("-a", "--agent", "agents", metavar="AGENT", help="Agent to run."),
    _many("-m", "--model", "models", metavar="MODEL", help="Model for the agent."),
    click.option(
        "-n", "--rollouts", type=click.IntRange(1), help="Rollouts of each task, agent and model. [1]"
    ),
    _many("--include", metavar="PATTERN", help="Only tasks, or benchmarks of a suite, whose name matches."),
    _many("--exclude", metavar="PATTERN", help="Leave out tasks or benchmarks whose name matches."),
    _many("--env", metavar="KEY=VALUE", help="An environment variable of the tasks."),
    _many("--agent-option", "agent_options", metavar="KEY=VALUE", help="An agent option."),
    takes_pass_env,
    click.option("--name", metavar="NAME", help="Name of the run. [that of the tasks]"),
    click.option("--timeout-s", type=float, metavar="SECONDS", help="Time limit of the agent."),
    click.option(
        "--parallel",
        type=click.IntRange(1),
        help="Number of trials at a time; timings then disturb each other.",
    ),
    takes_host_root,
    takes_network,
    _many(
        *("--set", "overrides"),
        metavar="KEY=VALUE",
        help="Change a value of the spec, such as iterations.measured=20.",
    ),
    takes_sources,
    click.option("--print-spec", is_flag=True, help="Print the spec as TOML and run nothing."),
)


def takes_suites(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a suite of another tool and choose from it."""
    choosing = (
        _many("--include", metavar="PATTERN", help="Only benchmarks of the suite whose name matches."),
        _many("--exclude", metavar="PATTERN", help="Leave out benchmarks of the suite whose name matches."),
    )
    for option in reversed((*SUITE_OPTIONS, *choosing)):
        function = option(function)
    return function


def takes_spec(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options above; it receives them as one `request`."""

    @wraps(function)
    def command(**values: Any) -> int:
        own = {each.name: values.pop(each.name) for each in fields(SpecRequest)}
        return function(SpecRequest(**own), **values)

    decorated: Callable[..., int] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def show_spec(spec: Spec) -> None:
    """Print the spec as TOML. Paths are as typed, and mean the working folder unless `base_dir` is there."""
    from proctor.spec.command_line import short_mapping, toml_text
    from proctor.tasks.address import without_secrets

    data = short_mapping(spec)
    if Path(data["base_dir"]) == Path.cwd():
        del data["base_dir"]
    print(toml_text(without_secrets(data)), end="")
