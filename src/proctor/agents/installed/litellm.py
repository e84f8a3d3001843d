"""LiteLLM's proxy, which translates between an agent's API and a provider's. It is no agent."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from proctor.agents.installed.folders import find, place_of
from proctor.agents.installed.recipes import PyPI, Recipe


class LiteLLM:
    """What `proctor agents install litellm` installs."""

    name = "litellm"
    version = "1.106.2"
    recipe: ClassVar[Recipe] = PyPI(
        package="litellm[proxy]", module="litellm.proxy.proxy_cli", pythons=((3, 11), (3, 13))
    )

    def binds(self) -> dict[str, Path]:
        """Nothing is shown to a sandbox: it runs beside the gateway."""
        return {}


def litellm_command(cache: Path) -> list[str]:
    """How the installed version is started; nothing when there is none."""
    if not find(cache, LiteLLM.name, LiteLLM.version):
        return []
    return LiteLLM.recipe.argv(str(place_of(cache, LiteLLM.name, LiteLLM.version).absolute()))
