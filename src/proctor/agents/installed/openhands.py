"""OpenHands, its command-line version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, INSTRUCTION, Event, InstalledAgent, Steps, text_of
from proctor.agents.installed.recipes import PyPI


class OpenHands(InstalledAgent):
    """OpenHands by All Hands AI."""

    name = "openhands"
    version = "1.16.0"
    recipe = PyPI(package="openhands", module="openhands_cli.entrypoint", pythons=((3, 12), (3, 12)))
    apis = ("chat",)
    long_instruction = (f"--file={INSTRUCTION}",)

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody, tell what is done."""
        return ["--headless", "--json", "--override-with-envs", f"--task={instruction}"]

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:
        """The model under the names that it reads; nothing is looked up elsewhere."""
        return {
            "LLM_MODEL": f"openai/{model}",
            "LLM_BASE_URL": context.access.base_url,
            "LLM_API_KEY": context.access.token,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENHANDS_SUPPRESS_BANNER": "1",
            "PYTHONUNBUFFERED": "1",
            "OPENHANDS_WORK_DIR": context.workdir,
            "HOME": HOME,
        }

    def read(self, event: Event, steps: Steps) -> None:
        """Its events; several calls of one answer of the model have its id in common."""
        if event["kind"] == "ActionEvent":
            call = event["tool_call"]
            answer = event.get("llm_response_id")
            steps.say(
                text_of(event.get("thought")),
                calls=[(event["tool_call_id"], event["tool_name"], json.loads(call["arguments"]))],
                reasoning=event.get("reasoning_content") or "",
                goes_on=bool(answer) and steps.state.get("answer") == answer,
            )
            steps.state["answer"] = answer
        elif event["kind"] == "MessageEvent" and event.get("source") == "agent":
            steps.say(text_of(event["llm_message"]["content"]))
        elif event.get(
            "tool_call_id"
        ):  # an error of the call is told by the agent, its result by the sandbox
            seen = event.get("observation") or {}
            steps.result(event["tool_call_id"], text_of(seen.get("content")) or str(event.get("error", "")))
