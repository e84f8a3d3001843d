"""Alibaba's Qwen Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps
from proctor.agents.installed.claude_code import read_stream
from proctor.agents.installed.recipes import Npm


class QwenCode(InstalledAgent):
    """Qwen Code by Alibaba."""

    name = "qwen-code"
    version = "0.24.4"
    recipe = Npm(package="@qwen-code/qwen-code", program="bin/qwen", node=True)
    apis = ("chat",)
    long_instruction = ()

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody, tell what is done."""
        options = ["--yolo", "--auth-type", "openai", "--output-format", "stream-json", "--model", model]
        return [*options, f"--prompt={instruction}"]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """One process, and no one told of it."""
        return {
            "OPENAI_MODEL": model,
            "QWEN_HOME": f"{HOME}/qwen",
            "QWEN_CODE_NO_RELAUNCH": "true",
            "QWEN_TELEMETRY_ENABLED": "false",
        }

    def files(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """Its settings."""
        return {"qwen/settings.json": _SETTINGS}

    def read(self, event: Event, steps: Steps) -> None:
        """Its stream-json, which is that of Claude Code."""
        read_stream(event, steps)


_SETTINGS = """\
{"general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
 "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
 "model": {"generationConfig": {"maxRetries": 0}}}
"""
