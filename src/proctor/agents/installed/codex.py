"""OpenAI's Codex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import Npm


class Codex(InstalledAgent):
    """Codex by OpenAI."""

    name = "codex"
    version = "0.166.0"
    recipe = Npm(
        package="@openai/codex",
        program="lib/node_modules/@openai/codex/node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    )
    apis = ("responses",)
    long_instruction = ("-",)

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:
        """A provider of its own name: with a known one it tries websockets, and ignores the address."""
        provider = {
            "name": "proctor",
            "base_url": context.access.base_url,
            "env_key": "OPENAI_API_KEY",
            "wire_api": "responses",
        }
        settings = [
            'model_provider="proctor"',
            *(f'model_providers.proctor.{key}="{value}"' for key, value in provider.items()),
            "model_providers.proctor.request_max_retries=0",
            "model_providers.proctor.stream_max_retries=0",
            "analytics.enabled=false",
            'web_search="disabled"',
            "check_for_update_on_startup=false",
        ]
        return [
            "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-m", model, *(word for each in settings for word in ("-c", each)),
            "--disable", "plugins", "--disable", "apps", "--", instruction,
        ]  # fmt: skip

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """Its own folder."""
        return {"CODEX_HOME": HOME}

    def read(self, event: Event, steps: Steps) -> None:
        """Items as they are completed, then the usage of the turn."""
        if event.get("type") == "turn.completed":
            usage = event["usage"]
            steps.measure(
                {
                    "prompt_tokens": usage["input_tokens"],
                    "completion_tokens": usage["output_tokens"],
                    "cached_tokens": usage.get("cached_input_tokens", 0),
                }
            )
        if event.get("type") != "item.completed":
            return
        item = event["item"]
        kind = item["type"]
        if kind in {"agent_message", "error"}:
            steps.say(item.get("text") or item.get("message", ""))
        elif kind == "reasoning":
            steps.say(reasoning=item["text"])
        elif kind == "command_execution":
            steps.say(calls=[(item["id"], "shell", {"command": item["command"]})])
            steps.result(item["id"], f"{item['aggregated_output']}\n[exit code {item['exit_code']}]")
        else:
            told = {key: value for key, value in item.items() if key not in {"id", "type"}}
            steps.say(calls=[(item["id"], kind, told)])
            steps.result(item["id"], text_of(item.get("status")))
