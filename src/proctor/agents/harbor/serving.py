"""What an agent of Harbor's asks of its environment, done in our sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal

from proctor.agents.base import AgentContext, BudgetExhausted
from proctor.agents.shell import LONGEST_ARGUMENT
from proctor.errors import SandboxError
from proctor.sandbox.base import Sandbox

LOG = "agent.txt"
_MOST_TEXT = 4 << 20
"""Of each stream of a command, the last bytes: both fit into one message, whatever they are."""
_MOST_DOWNLOAD = 256 << 20


class Served:
    """Answers the questions of one attempt. What ends the attempt besides the agent itself is in `ended`."""

    def __init__(self, sandbox: Sandbox, context: AgentContext, folder: Path, extra_path: str) -> None:
        self._sandbox, self._context = sandbox, context
        self._folder = folder.resolve()
        self._extra_path = extra_path
        self._seen = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer(self, what: str, fields: Mapping[str, Any]) -> Any:
        """One question; what goes wrong is told to the agent, and kept if the sandbox is the reason."""
        known: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "exec": self._exec,
            "upload": self._upload,
            "download": self._download,
        }
        try:
            return await known[what](**fields)
        except SandboxError as error:
            self._end(error)
            raise

    async def until_ended(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the work comes to; the error that ended the attempt goes before what the agent makes of it."""
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait({working, self.ended}, return_when=asyncio.FIRST_COMPLETED)
            if self.ended.done():
                self.ended.result()
            return await working
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            elif not working.cancelled():
                working.exception()  # the error above says why

    def close(self) -> None:
        """No more questions."""
        if self.ended.done():
            self.ended.exception()
        self.ended.cancel()

    async def _exec(
        self,
        *,
        command: str,
        cwd: str | None,
        env: Mapping[str, str],
        timeout_s: float | None,
        user: str | None,
    ) -> dict[str, Any]:
        if self._extra_path:
            command = f'export PATH="$PATH:{self._extra_path}"\n{command}'
        as_input = len(command.encode()) > LONGEST_ARGUMENT
        result = await self._sandbox.exec(
            ["bash", "-s"] if as_input else ["bash", "-c", command],
            env={**self._context.env, **env},
            cwd=cwd or self._context.workdir,
            user=user or self._context.user,
            stdin=command.encode() if as_input else None,
            timeout_s=timeout_s,
            on_output=self._heard,
            keep_bytes=_MOST_TEXT,
        )
        if result.timed_out:
            raise TimeoutError(f"Command timed out after {timeout_s:g} seconds")
        return {
            "return_code": result.exit_code,
            "stdout": result.stdout.decode(errors="replace"),
            "stderr": result.stderr.decode(errors="replace"),
        }

    def _heard(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        del stream
        self._seen += len(data)
        most = self._context.limits.output_bytes
        if self._seen > most:
            self._end(BudgetExhausted(f"more than {most} bytes of output"))
            return
        self._context.log(LOG, data)

    async def _upload(self, *, source: str, target: str) -> None:
        await self._sandbox.upload(Path(source), target)

    async def _download(self, *, source: str, target: str) -> None:
        """Only into the attempt's own folder, whatever is asked for."""
        place = Path(target).resolve()
        if not place.is_relative_to(self._folder):
            raise PermissionError(f"{target} is outside the folder of this attempt")
        place.parent.mkdir(parents=True, exist_ok=True)
        await self._sandbox.download(source, place, max_bytes=_MOST_DOWNLOAD)

    def _end(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
