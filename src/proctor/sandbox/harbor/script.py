"""The other end of the bridge: a program for the Python that has Harbor. Proctor itself never imports it.

`script.py list` prints which agents and environments Harbor has; `script.py serve FD` answers what is asked
on a socket: it runs one of Harbor's agents, whose environment asks back, or holds environments of Harbor.
"""

# mypy: disallow-subclassing-any=False
# The methods are those of Harbor, or named for what the other end asks.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import socket
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])  # where Harbor's packages are

from harbor.agents.factory import AgentFactory
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.environments.factory import EnvironmentFactory
from harbor.models.agent.context import AgentContext
from harbor.models.agent.name import AgentName
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import EnvironmentConfig, MCPServerConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

_LOGGER = logging.getLogger("proctor")
_AGENT_LOGS = "/logs/agent"
_NETWORKS = {"none": "no-network", "public": "public", "allowlist": "allowlist"}
_MOST_TEXT = 4 << 20


def _line_module() -> Any:
    """The file beside this one, without the rest of its package."""
    spec = importlib.util.spec_from_file_location("proctor_line", Path(__file__).with_name("line.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINE = _line_module()


class OurSandbox(BaseEnvironment):
    """A sandbox of Proctor, as an environment of Harbor's."""

    def __init__(self, line: Any, folder: Path, user: str | None) -> None:
        self._line = line
        super().__init__(
            environment_dir=folder,
            environment_name="proctor",
            session_id="proctor",
            trial_paths=TrialPaths(folder),
            task_env_config=EnvironmentConfig(),
        )
        self.default_user = user

    @staticmethod
    def type() -> str:
        return "proctor"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True, network_allowlist=True)

    def _validate_definition(self) -> None:
        """The task was read before."""

    async def start(self, force_build: bool) -> None:
        """It runs already."""

    async def stop(self, delete: bool) -> None:
        """Proctor stops it."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        who = self._resolve_user(user)
        found = await self._ask(
            "exec",
            command=command,
            cwd=cwd,
            env=self._merge_env(env) or {},
            timeout_s=timeout_sec,
            user=None if who is None else str(who),
        )
        return ExecResult(**found)

    async def _ask(self, what: str, **fields: Any) -> Any:
        try:
            return await self._line.ask(what, **fields)
        except LINE.Refused as error:
            raise RuntimeError(str(error)) from error  # as Harbor's own environments tell it

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._ask("upload", source=str(Path(source_path).absolute()), target=str(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.upload_file(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._ask("download", source=str(source_path), target=str(Path(target_path).absolute()))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self.download_file(source_dir, target_dir)


class Side:
    """What this end can be asked for: one agent, and any number of environments."""

    def __init__(self) -> None:
        self.line: Any = None
        self._agent: Any = None
        self._sandbox: OurSandbox | None = None
        self._environments: dict[str, Any] = {}

    async def answer(self, what: str, fields: Mapping[str, Any]) -> Any:
        """Call the method of that name."""
        return await getattr(self, f"do_{what}")(**fields)

    # An agent

    async def do_make_agent(
        self,
        *,
        name: str,
        model: str | None,
        folder: str,
        user: str | None,
        options: dict[str, Any],
        env: dict[str, str],
        mcp_servers: list[dict[str, Any]],
        skills_dir: str | None,
    ) -> str:
        logs = Path(folder) / "agent"
        logs.mkdir(parents=True, exist_ok=True)
        self._sandbox = OurSandbox(self.line, Path(folder), user)
        self._agent = AgentFactory.create_agent_from_name(
            AgentName(name),
            logs_dir=logs,
            model_name=model,
            extra_env=env,
            mcp_servers=[MCPServerConfig(**each) for each in mcp_servers],
            skills_dir=skills_dir,
            **options,
        )
        return str(self._agent.version() or "")

    async def do_set_up(self) -> None:
        await self._agent.setup(self._sandbox)

    async def do_work(self, *, instruction: str) -> None:
        assert self._sandbox
        context = AgentContext()
        try:
            await self._agent.run(instruction, self._sandbox, context)
        finally:
            await self._gather(context)

    async def _gather(self, context: AgentContext) -> None:
        """Have the agent make a trajectory of its logs; that it cannot says nothing about its work."""
        assert self._sandbox
        try:
            await self._sandbox.download_dir(_AGENT_LOGS, self._agent.logs_dir)
            self._agent.populate_context_post_run(context)
        except Exception:
            _LOGGER.exception("the agent's logs could not be read")

    # Environments

    async def do_start(
        self,
        *,
        key: str,
        kind: str,
        folder: str,
        definition: str,
        config: dict[str, Any],
        network: str,
        allowed_hosts: list[str],
    ) -> dict[str, Any]:
        made = _environment(kind, key, folder, definition, config, _policy(network, allowed_hosts))
        self._environments[key] = made
        await made.start(force_build=False)
        limits = type(made).resource_capabilities()
        return {
            "cpus": bool(limits and limits.cpu_limit),
            "memory": bool(limits and limits.memory_limit),
        }

    async def do_exec(
        self,
        *,
        key: str,
        command: str,
        cwd: str | None,
        env: dict[str, str],
        user: str | None,
        timeout_s: int | None,
    ) -> dict[str, Any]:
        found = await self._environments[key].exec(
            command, cwd=cwd, env=env, user=user, timeout_sec=timeout_s
        )
        return {
            "exit_code": found.return_code,
            "stdout": (found.stdout or "")[-_MOST_TEXT:],
            "stderr": (found.stderr or "")[-_MOST_TEXT:],
        }

    async def do_upload(self, *, key: str, source: str, target: str) -> None:
        await self._environments[key].upload_file(source, target)

    async def do_download(self, *, key: str, source: str, target: str) -> None:
        await self._environments[key].download_file(source, target)

    async def do_set_network(self, *, key: str, network: str, allowed_hosts: list[str]) -> None:
        await self._environments[key].set_network_policy(_policy(network, allowed_hosts))

    async def do_stop(self, *, key: str) -> None:
        made = self._environments.get(key)
        if made:
            await made.stop(delete=True)  # it stays known until that has worked
            del self._environments[key]

    async def do_remove(self, *, key: str, kind: str, folder: str, definition: str) -> None:
        """Delete what another process has made, as far as its service goes by names."""
        made = _environment(kind, key, folder, definition, {}, _policy("none", []))
        await made.stop(delete=True)

    async def do_leave(self) -> None:
        await self.line.end_work()

    async def close(self) -> None:
        """Proctor is gone or ends: leave nothing that costs money."""
        stopping = [made.stop(delete=True) for made in self._environments.values()]
        ends = await asyncio.gather(*stopping, return_exceptions=True)
        for key, end in zip(self._environments, ends, strict=True):
            if end is not None:
                _LOGGER.warning("%s could not be deleted: %r", key, end)


def _environment(
    kind: str, key: str, folder: str, definition: str, config: dict[str, Any], policy: NetworkPolicy
) -> Any:
    common: dict[str, Any] = {
        "environment_dir": Path(definition),
        "environment_name": key,
        "session_id": key,
        "trial_paths": TrialPaths(Path(folder)),
        "task_env_config": EnvironmentConfig(**config),
        "network_policy": policy,
    }
    if ":" in kind:
        sys.path.insert(1, str(Path.cwd()))
        return EnvironmentFactory.create_environment_from_import_path(kind, **common)
    return EnvironmentFactory.create_environment(EnvironmentType(kind), **common)


def _policy(network: str, allowed_hosts: list[str]) -> NetworkPolicy:
    hosts = allowed_hosts if network == "allowlist" else []
    return NetworkPolicy(network_mode=_NETWORKS[network], allowed_hosts=hosts)


async def serve(descriptor: int) -> None:
    """Answer until the line ends."""
    side = Side()
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor))
    side.line = LINE.Line(reader, writer, side.answer)
    try:
        await side.line.run()
    finally:
        await side.close()


def main() -> None:
    """One of the two commands."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if sys.argv[2] == "list":
        found = {
            "version": version("harbor"),
            "agents": AgentFactory.registered_names(),
            "environments": sorted(each.value for each in EnvironmentType),
        }
        sys.stdout.write(json.dumps(found))
        return
    asyncio.run(serve(int(sys.argv[3])))


if __name__ == "__main__":
    main()
