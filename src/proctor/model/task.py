"""A task as its author meant it: what to do, where, within which limits, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Network = Literal["none", "public", "allowlist"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthcheck:
    """A command that must succeed before the agent starts."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """Where the agent works."""

    build_timeout_s: float = 600.0
    image: str | None = None
    """A prebuilt image; otherwise `folder`'s Dockerfile or compose file."""
    folder: Path | None = None
    dockerfile: Path | None = None
    compose: Path | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    gpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    """As written: `${VAR}` and `${VAR:-default}` are filled in when the trial starts."""
    workdir: str | None = None
    network: Network | None = None
    allowed_hosts: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    mcp_servers: tuple[Mapping[str, Any], ...] = ()
    skills_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What the task allows its agent."""

    timeout_s: float = 600.0
    user: str | None = None
    network: Network | None = None
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """How the final state becomes a reward."""

    timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    separate: bool = False
    """The tests run in an environment of their own, with the collected files."""
    environment: TaskEnvironment | None = None
    collect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One leg of a multi-step task, judged on its own."""

    name: str
    instruction: str
    agent: AgentLimits
    verifier: VerifierSpec
    tests: Path | None = None
    solution: Path | None = None
    min_reward: float | None = None
    """Below it the later steps are not tried."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """One thing a prepared task is judged on."""

    id: str
    description: str = ""
    weight: float = 1.0
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The code a prepared task starts from."""

    git_url: str = ""
    branch: str = ""
    start_commit_sha: str = ""
    end_commit_sha: str = ""
    subdir: str = ""
    sparse_checkout: tuple[str, ...] = ()
    path: Path | None = None
    """A copy that lies in the task folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, read and checked."""

    name: str
    path: Path
    digest: str
    kind: Literal["harbor", "prepared"] = "harbor"
    schema_version: str = "1.0"
    version: str = ""
    description: str = ""
    keywords: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    instruction: str = ""
    environment: TaskEnvironment = field(default_factory=TaskEnvironment)
    agent: AgentLimits = field(default_factory=AgentLimits)
    verifier: VerifierSpec = field(default_factory=VerifierSpec)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    tests: Path | None = None
    solution: Path | None = None
    artifacts: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    reward_strategy: Literal["mean", "final"] = "mean"
    repository: Repository | None = None
    rubrics: tuple[Rubric, ...] = ()
    warnings: tuple[str, ...] = ()
