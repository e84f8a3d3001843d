"""A task as its author meant it: what to do, where, within which limits, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Network = Literal["none", "public", "allowlist"]
PerformanceMetric = Literal["time", "cpu", "memory", "custom"]
MAIN_SERVICE = "main"
"""The service of a compose file that is the agent's sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthcheck:
    """A command that must succeed before the agent starts."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    """While it lasts, a failure is not counted and the next look comes after `start_interval_s`."""
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools that the task offers to its agent."""

    name: str
    transport: Literal["stdio", "sse", "streamable-http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArtifact:
    """A file or folder to copy out of the sandbox; a separate verifier gets it too."""

    source: str
    """Its path inside; one that is not absolute is below the working folder."""
    destination: str | None = None
    """Its path among the kept files; without one it mirrors `source`."""
    exclude: tuple[str, ...] = ()
    """Patterns of names and relative paths that are left out of a folder."""
    service: str = MAIN_SERVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectHook:
    """A command that writes down what is to be judged, after the agent and before the artifacts are taken."""

    command: str
    service: str = MAIN_SERVICE
    timeout_s: float = 60.0
    user: str | None = None


HOST_ROOT = "this machine's own system: `sandbox: {host_root: true}` in the spec, --host-root in a terminal"
"""How to do without an image, as messages say it."""


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
    gpu_types: tuple[str, ...] = ()
    tpu: str = ""
    """The TPU slice that is asked for, as "type topology"."""
    os: Literal["linux", "windows"] = "linux"
    env: Mapping[str, str] = field(default_factory=dict)
    """As written: `${VAR}` and `${VAR:-default}` are filled in when the trial starts."""
    workdir: str | None = None
    network: Network = "public"
    """Of the whole task, unless the agent or the verifier has another."""
    allowed_hosts: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    skills_dir: str | None = None
    """A folder inside, with one folder per skill."""

    @property
    def loose_files(self) -> Path | None:
        """The folder whose files are laid into the working folder: a ready image holds none of them."""
        return self.folder if self.image and not self.dockerfile and not self.compose else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What the task allows its agent."""

    timeout_s: float = 600.0
    user: str | None = None
    network: Network | None = None
    """While the agent works; None: the environment's."""
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceSpec:
    """How the program that an agent wrote is measured against the author's, once the tests pass."""

    command: str
    """A command line for the shell, run in the working folder of both."""
    reference: Path
    """The folder with the author's program: laid over the working folder as the image has it."""
    metric: PerformanceMetric = "time"
    direction: Literal["lower", "higher"] = "lower"
    """What is better."""
    rounds: int = 15
    """Most rounds; they end as soon as the reward is settled."""
    target: float = 2.0
    """How many times better than the reference gives the whole reward."""
    precision: float = 0.1
    """The widest interval of a reward that counts as settled."""
    inputs: str = ""
    """A command that fills `/inputs` for a round, in the sandbox of the reference."""
    check: str = ""
    """A command that accepts an output; without one it must be the same as the reference's."""
    timeout_s: float = 60.0
    """Of one execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """How the final state becomes a reward."""

    timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    separate: bool = False
    """The tests run in an environment of their own, with the collected files."""
    environment: TaskEnvironment | None = None
    """The verifier's own; None: a fresh copy of the task's."""
    bundled: bool = False
    """The image of the separate verifier already has `/tests`, and nothing is copied there."""
    collect: tuple[CollectHook, ...] = ()
    network: Network | None = None
    """While the tests run; None: the environment's."""
    allowed_hosts: tuple[str, ...] = ()
    performance: PerformanceSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One leg of a multi-step task, judged on its own."""

    name: str
    instruction: str
    agent: AgentLimits
    verifier: VerifierSpec
    tests: tuple[Path, ...] = ()
    """Folders that are laid over each other at `/tests`: those of the task, then the step's own."""
    solution: Path | None = None
    workdir: Path | None = None
    """Files that are laid into the working folder before the step; a `setup.sh` among them is run there."""
    min_reward: Mapping[str, float] = field(default_factory=dict)
    """Part of the reward → its minimum; below it the later steps are not tried."""
    healthcheck: Healthcheck | None = None
    artifacts: tuple[TaskArtifact, ...] = ()


@dataclass(frozen=True, slots=True)
class TestScript:
    """A test that is written into the working folder after the agent has ended, and run there."""

    __test__ = False
    path: str
    content: str | None
    """None: it is run as it is there, which the agent may have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """One thing a prepared task is judged on."""

    id: str
    description: str = ""
    weight: float = 1.0
    tests: tuple[str, ...] = ()
    """Scripts below the task's `tests/`, which run from `/tests`."""
    scripts: tuple[TestScript, ...] = ()

    @property
    def is_tested(self) -> bool:
        """Whether anything tests it."""
        return bool(self.tests or self.scripts)


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
    in_image: bool = False
    """Whether the task's Dockerfile fetches it: then it is in the working folder already."""
    nested: bool = False
    """Whether the working folder is a part of a larger one, which `overlay_files` are laid into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """A step-by-step task: which actions there are, how many may be made, and what judges them."""

    id: str
    """The package of the task's modules: `tasks.<id>`."""
    steps: int
    """How often the agent may act."""
    tool_calls: int
    """How many of its actions are executed."""
    setup: tuple[str, str] = ("setup.py", "setup")
    """File and function that make the environment from a seed."""
    actions: str = "actions.py"
    """The file whose functions are the actions."""
    validator: tuple[str, str] = ("validate.py", "validate")
    """File and function that judge the environment."""
    filesystem_roots: tuple[str, ...] = ()
    """Folders of the environment that actions may use."""
    network_hosts: tuple[str, ...] = ()
    """Hosts that actions may reach."""
    deterministic: bool = True
    """Whether the same seed and the same actions give the same results; then hashing has a fixed seed too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, read and checked."""

    name: str
    path: Path
    digest: str
    kind: Literal["harbor", "prepared", "episode"] = "harbor"
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
    trajectory: Path | None = None
    """What an agent is to remember of earlier work, as an ATIF document."""
    artifacts: tuple[TaskArtifact, ...] = ()
    steps: tuple[Step, ...] = ()
    reward_strategy: Literal["mean", "final"] = "mean"
    repository: Repository | None = None
    rubrics: tuple[Rubric, ...] = ()
    episode: EpisodeSpec | None = None
    """Of a task of the kind `episode`."""
    warnings: tuple[str, ...] = ()

    @property
    def needs_judge(self) -> bool:
        """Whether it has rubrics and no test for any that counts: only a judge can score it."""
        return bool(self.rubrics) and not any(each.is_tested and each.weight for each in self.rubrics)
