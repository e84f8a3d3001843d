"""Harbor's environments (`harbor:modal`, …) as a kind of sandbox, all held by one process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.errors import LastingSandboxError, SandboxError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.harbor.bridge import Bridge
from proctor.sandbox.harbor.place import VERSION, HarborPlace, find_all, provider_environment
from proctor.sandbox.harbor.sandbox import HarborSandbox
from proctor.sandbox.image.images import BuildProgress, SettingsOnly
from proctor.settings import load_settings

PREFIX = "harbor:"
KNOWN = (
    "ack", "apple-container", "beam", "blaxel", "cua-cloud", "cwsandbox", "daytona", "e2b", "ec2", "gke",
    "hf-sandbox", "hyperbrowser", "islo", "kata", "langsmith", "modal", "mosaic", "novita", "opensandbox",
    "openshift", "prime", "runloop", "runta", "singularity", "skypilot", "smol", "tensorlake", "use-computer",
    "vercel",
)  # fmt: skip
"""Environments of Harbor that can be named alone, because Proctor has no sandbox of that name."""
_LEAVES_S = 60.0
"""How long Harbor may take to delete what it made elsewhere."""


class HarborBackend:
    """Creates sandboxes of one of Harbor's environments."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """Harbor's name, or a class of the project's own as `module:Class`."""
        self.name = f"{PREFIX}{kind}"
        self.running: set[HarborSandbox] = set()
        self._bridge: Bridge | None = None
        self._opened = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()

    async def bridge(self) -> Bridge:
        """The process, started when the first sandbox needs it."""
        async with self._opening:
            if self._bridge is None:
                place = place_for(self.kind)
                if place is None:
                    raise LastingSandboxError(obstacle(self.kind))
                self._bridge = await self._opened.enter_async_context(
                    Bridge(
                        place,
                        env=provider_environment(self.kind),
                        cwd=Path.cwd(),
                        answer=_nothing,
                        leaves_s=_LEAVES_S,
                    )
                )
            return self._bridge

    def sandbox(self, request: SandboxRequest) -> HarborSandbox:
        """One sandbox, not yet started."""
        return HarborSandbox(self, request)

    async def reap(self) -> tuple[str, ...]:
        """Harbor's process ends what it holds when ours is gone; what that left is the provider's to find."""
        return ()

    async def close(self) -> None:
        """Stop what is still running."""
        for sandbox in tuple(self.running):
            with contextlib.suppress(SandboxError):
                await sandbox.stop()
        self._bridge = None
        await self._opened.aclose()


async def _nothing(what: str, fields: Mapping[str, Any]) -> None:
    del fields
    raise LookupError(f"nothing is known of '{what}' here")


class HarborImages(SettingsOnly):
    """Harbor makes the images of its environments itself; here is what it makes them from."""

    async def _make(self, wanted: TaskEnvironment, progress: BuildProgress) -> Root:
        settings = await super()._make(wanted, progress)
        return replace(settings, image=wanted.image, definition=wanted.folder)


def place_for(kind: str) -> HarborPlace | None:
    """The Harbor that has what an environment needs, or else any that is installed."""
    found = [each for each in find_all(load_settings().cache_dir) if each.has_python]
    fitting = [each for each in found if kind in each.extras]
    return next(iter((*fitting, *found)), None)


def obstacle(kind: str) -> str:
    """Why an environment of Harbor's cannot work here, as far as a quick look tells."""
    place = place_for(kind)
    if place is None:
        return (
            "Harbor is not installed: run 'proctor agents install harbor', with the packages of a service "
            f"'proctor agents install harbor --version {VERSION}+{kind if kind in KNOWN else 'modal'}'"
        )
    if ":" not in kind and kind not in place.environments:
        return f"Harbor {place.version} has no environment '{kind}'; it has {', '.join(place.environments)}"
    return ""
