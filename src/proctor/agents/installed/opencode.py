"""OpenCode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import Npm


class OpenCode(InstalledAgent):
    """OpenCode by Anomaly."""

    name = "opencode"
    version = "1.18.33"
    recipe = Npm(package="opencode-ai", program="lib/node_modules/opencode-ai/bin/opencode.exe")
    apis = ("chat",)
    long_instruction = ()

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody; a title is given, else a model is asked for one."""
        options = ["--format", "json", "--auto", "--title", "task", "-m", f"proctor/{model}"]
        return ["run", *options, "--", instruction]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:
        """One provider with one model, and nothing fetched."""
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "proctor",
            "options": {"baseURL": context.access.base_url, "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {model: {"name": model}},
        }
        settings = {
            "provider": {"proctor": provider},
            "small_model": f"proctor/{model}",
            "autoupdate": False,
            "share": "disabled",
        }
        places = {"CONFIG": "config", "DATA": "data", "STATE": "state", "CACHE": "cache"}
        return {
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            **{f"XDG_{name}_HOME": f"{HOME}/{folder}" for name, folder in places.items()},
        }

    def read(self, event: Event, steps: Steps) -> None:
        """Parts of its messages, between the start and the end of a step."""
        kind, part = event.get("type"), event.get("part") or {}
        if kind == "step_start":
            steps.say()
        elif kind == "text":
            steps.say(text_of(part.get("text")), goes_on=True)
        elif kind == "reasoning":
            steps.say(reasoning=text_of(part.get("text")), goes_on=True)
        elif kind == "tool_use":
            state = part.get("state") or {}
            steps.say(calls=[(part["callID"], part["tool"], state.get("input") or {})], goes_on=True)
            steps.result(part["callID"], text_of(state.get("output") or state.get("error")))
        elif kind == "step_finish":
            tokens = part.get("tokens") or {}
            cached = (tokens.get("cache") or {}).get("read") or 0
            steps.measure(
                {
                    "prompt_tokens": (tokens.get("input") or 0) + cached,
                    "completion_tokens": tokens.get("output") or 0,
                    "cached_tokens": cached,
                }
            )
