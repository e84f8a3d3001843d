"""Harbor's environments (`harbor:modal`, …) as a kind of sandbox, all held by one process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.errors import HostError, LastingSandboxError, SandboxError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.harbor import leftovers
from proctor.sandbox.harbor.bridge import Bridge
from proctor.sandbox.harbor.line import Refused
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
AGAIN_S = (1.0, 4.0, 15.0)
"""How long to wait before Harbor is asked again to delete something."""
_LEAVES_S = 60.0
"""How long Harbor may take to delete what it made elsewhere."""

_log = logging.getLogger("proctor.sandbox")
_made = itertools.count()
"""Back ends of this process: each has a folder of its own."""


class HarborBackend:
    """Creates sandboxes of one of Harbor's environments."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind = kind
        """Harbor's name, or a class of the project's own as `module:Class`."""
        self.name = f"{PREFIX}{kind}"
        self.running: set[HarborSandbox] = set()
        self._bridge: Bridge | None = None
        self._opened = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._environments = leftovers.Environments(home, next(_made))
        self._remaining: set[str] = set()
        """Those that Harbor did not delete when it was asked."""

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

    def note(self, name: str, definition: Path | None) -> None:
        """Remember an environment that is about to be made until it is deleted."""
        self._environments.note(name, {"kind": self.kind, "definition": str(definition or "")})

    async def delete(self, name: str) -> None:
        """Have Harbor delete an environment, trying again after a while; SandboxError names what remains."""
        self._remaining.add(name)
        for pause_s in (*AGAIN_S, None):
            try:
                await (await self.bridge()).ask("stop", key=name)
            except HostError as error:
                problem = str(error)
                break
            except Refused as error:
                problem = f"{error.kind}: {str(error)[:1500]}"
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
            else:
                self._remaining.discard(name)
                self._environments.forget(name)
                return
        raise SandboxError(
            f"{self.name} did not delete {name} and may charge for it ({problem}); this is tried again when "
            "the run ends and when the next one begins, or delete it at the service yourself"
        )

    async def reap(self) -> tuple[str, ...]:
        """Delete what killed processes and failed stops left with the service, as far as it goes by names."""
        done = []
        for file, about in self._environments.left():
            if about.get("kind") != self.kind:
                continue  # the next start of that kind has what it takes
            name = str(about["name"])
            try:
                await self._remove(name, Path(about["definition"] or "/nothing"))
            except (SandboxError, Refused) as error:
                _log.warning("%s did not delete %s and may charge for it: %s", self.name, name, error)
            else:
                file.unlink(missing_ok=True)
                done.append(f"environment {name} of {self.name}")
        return tuple(done)

    async def _remove(self, name: str, definition: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="proctor-harbor-") as folder:
            found = definition if definition.is_dir() else Path(folder)
            bridge = await self.bridge()
            await bridge.ask("remove", key=name, kind=self.kind, folder=folder, definition=str(found))

    async def close(self) -> None:
        """Stop what is still running, try what remains once more, and name what is left then."""
        stopping = [sandbox.stop() for sandbox in tuple(self.running)]
        again = [self.delete(name) for name in tuple(self._remaining)]
        for error in await asyncio.gather(*stopping, *again, return_exceptions=True):
            if isinstance(error, SandboxError):
                _log.warning("%s", error)
        self._bridge = None
        await self._opened.aclose()
        self._environments.close()


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
