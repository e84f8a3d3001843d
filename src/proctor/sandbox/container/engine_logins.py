"""What an engine may use for a project of a server: its storage and its logins, as far as they were granted.

An engine pulls with every login of this machine, and gives what it has pulled to everybody. So what was
not granted is pulled again without a login, which proves that it is open to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.errors import LastingImageError, UsageError
from proctor.sandbox.base import RootOptions
from proctor.sandbox.container.engine import Engine
from proctor.sandbox.image.references import parse
from proctor.sandbox.image.registry.access import access_of
from proctor.sandbox.image.registry.credentials import find_login
from proctor.settings import load_settings


class EngineLogins:
    """The options of an engine's commands that pull images, for one run."""

    def __init__(self, engine: Engine, folder: Path, options: RootOptions) -> None:
        self._engine = engine
        self._folder = folder / "no-login"
        self._project = options.project
        self._access = access_of(load_settings(), options.project)

    def granted(self, reference: str) -> bool:
        """Whether the engine's own copy of an image, and its login for it, may be used."""
        if self._project is None:
            return True
        try:
            named = parse(reference)
        except UsageError:
            return False
        return bool(self._access.grant(named.registry, named.repository))

    def before_pull(self, reference: str) -> tuple[str, ...]:
        """The words of a pull before the image's name."""
        if self.granted(reference):
            return ("pull", "--quiet")
        config = str(self._without_logins())
        if self._engine.name == "docker":
            return ("--config", str(Path(config).parent), "pull", "--quiet")
        return ("pull", "--quiet", "--authfile", config)

    def build_options(self, references: Sequence[str]) -> tuple[str, ...]:
        """Options of a build on these images; none are known where the Dockerfile could not be read."""
        if self._project is None or (references and all(map(self.granted, references))):
            return ()
        if self._engine.name != "docker":
            return ("--authfile", str(self._without_logins()), "--pull=always")
        for reference in references:
            named = parse(reference)
            if find_login(named.registry, named.repository).login:
                raise LastingImageError(
                    f"docker would build on {reference} with the server's login, which the project "
                    f"'{self._project}' was not granted (setting registry_logins)"
                )
        return ("--pull",)

    def hint(self, reference: str) -> str:
        """What to do about an image that could not be pulled without a login."""
        if self.granted(reference):
            return ""
        name = reference.partition("@")[0]
        return f"; the server's own copy and login are for projects to which registry_logins grants {name}"

    def _without_logins(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "config.json"
        file.write_text('{"auths": {}}')
        return file
