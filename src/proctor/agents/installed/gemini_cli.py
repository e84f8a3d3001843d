"""Google's Gemini CLI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import Npm


class GeminiCli(InstalledAgent):
    """Gemini CLI by Google."""

    name = "gemini-cli"
    version = "0.61.0"
    recipe = Npm(package="@google/gemini-cli", program="bin/gemini", node=True)
    apis = ("gemini",)
    long_instruction = ()

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody, tell what is done."""
        return ["--yolo", "--skip-trust", "-o", "stream-json", "-m", model, f"--prompt={instruction}"]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """One process, with a folder of its own."""
        return {
            "GEMINI_CLI_HOME": HOME,
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_TELEMETRY_ENABLED": "false",
        }

    def files(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """Its settings: one try per call, and no one told of it."""
        return {".gemini/settings.json": _SETTINGS}

    def read(self, event: Event, steps: Steps) -> None:
        """What it says in pieces, its calls and their results, then what was used."""
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            if not (steps.state.get("said") and event.get("delta")):
                steps.say()
            steps.piece(text_of(event.get("content")))
            steps.state["said"] = True
        elif kind == "tool_use":
            calls = [(event["tool_id"], event["tool_name"], event.get("parameters") or {})]
            steps.say(calls=calls, goes_on=bool(steps.state.get("said")))
            steps.state["said"] = True
        elif kind == "tool_result":
            steps.result(event.get("tool_id"), text_of(event.get("output") or event.get("error")))
            steps.state["said"] = False
        elif kind == "result":
            stats = event.get("stats") or {}
            steps.measure(
                {
                    "prompt_tokens": stats.get("input_tokens") or 0,
                    "completion_tokens": stats.get("output_tokens") or 0,
                    "cached_tokens": stats.get("cached") or 0,
                }
            )


_SETTINGS = """\
{"security": {"auth": {"selectedType": "gemini-api-key"}},
 "general": {"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true, "maxAttempts": 1,
             "retryFetchErrors": false},
 "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
 "tools": {"exclude": ["google_web_search", "web_fetch"]}}
"""
