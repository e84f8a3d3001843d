"""Aider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.agents.base import AgentContext
from proctor.agents.installed.base import HOME, INSTRUCTION, InstalledAgent
from proctor.agents.installed.recipes import PyPI


class Aider(InstalledAgent):
    """Aider by Paul Gauthier. It asks once, and edits files by what the answer says."""

    name = "aider"
    version = "0.86.2"
    recipe = PyPI(package="aider-chat", module="aider", pythons=((3, 11), (3, 12)))
    apis = ("chat",)
    long_instruction = (f"--message-file={INSTRUCTION}",)
    tells_events = False

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:  # noqa: ARG002
        """Ask nobody, keep nothing, look nothing up."""
        kept = ["--input-history-file", "--chat-history-file", "--llm-history-file"]
        return [
            "--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-pretty",
            "--no-git", "--no-detect-urls", "--no-show-release-notes", "--no-gitignore",
            *(word for each in kept for word in (each, f"{HOME}/{each.strip('-')}.md")),
            "--model", f"openai/{model}", "--weak-model", f"openai/{model}", f"--message={instruction}",
        ]  # fmt: skip

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002
        """Prices are the gateway's affair."""
        return {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": HOME}
