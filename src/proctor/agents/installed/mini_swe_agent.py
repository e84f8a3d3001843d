"""mini-swe-agent of the SWE-bench team."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import PyPI


class MiniSweAgent(InstalledAgent):
    """mini-swe-agent by the makers of SWE-bench."""

    name = "mini-swe-agent"
    version = "2.4.6"
    recipe = PyPI(package="mini-swe-agent", module="minisweagent.run.mini", also=("mcp",))
    apis = ("chat",)
    result_file = f"{HOME}/trajectory.json"
    tells_events = False

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody, and end when the work is done."""
        options = ["-y", "-m", f"openai/{model}", "--exit-immediately", "-o", self.result_file]
        return [*options, f"--task={instruction}"]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """One try per call, prices left to the gateway."""
        return {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": HOME,
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
            "MSWEA_SILENT_STARTUP": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def read(self, event: Event, steps: Steps) -> None:
        """The messages of its trajectory file."""
        for message in event["messages"]:
            if message["role"] == "assistant":
                usage = ((message.get("extra") or {}).get("response") or {}).get("usage") or {}
                calls = [
                    (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                    for call in message.get("tool_calls") or ()
                ]
                metrics = {
                    name: usage[name] for name in ("prompt_tokens", "completion_tokens") if name in usage
                }
                steps.say(text_of(message.get("content")), calls=calls, metrics=metrics)
            elif message["role"] == "tool":
                steps.result(message.get("tool_call_id"), text_of(message.get("content")))
