"""Run one command for an agent, with its output in the log and returned for the trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from proctor.agents.base import AgentContext, BudgetExhausted
from proctor.sandbox.base import Before, ExecResult, Sandbox, exec_after

_OBSERVED_BYTES = 32_000


async def run_shell(
    sandbox: Sandbox,
    context: AgentContext,
    script: str | list[str],
    *,
    log: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float | None = None,
    copies: Sequence[tuple[Path, str]] = (),
) -> tuple[ExecResult, str]:
    """The result, and its output as a reader would quote it. Output beyond the agent's limit ends it.

    A list is run as it is; a text is a script for the shell. `copies` are uploaded first.
    """
    seen = 0
    too_much = False

    def on_output(_: Literal["stdout", "stderr"], data: bytes) -> None:
        nonlocal seen, too_much
        seen += len(data)
        if seen <= context.limits.output_bytes:
            context.log(log, data)
        else:
            too_much = True

    result = await exec_after(
        sandbox,
        Before(copies=copies),
        ["/bin/sh", "-c", script] if isinstance(script, str) else script,
        env={**context.env, **(env or {})},
        cwd=cwd or context.workdir,
        user=context.user,
        timeout_s=timeout_s,
        on_output=on_output,
        keep_bytes=_OBSERVED_BYTES,
    )
    if too_much:
        raise BudgetExhausted(f"more than {context.limits.output_bytes} bytes of output")
    text = (result.stdout + result.stderr).decode(errors="replace")
    return result, text
