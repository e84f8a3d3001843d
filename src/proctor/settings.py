"""Frozen settings from the environment and an optional file; read in one place, passed on as a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from proctor.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is `PROCTOR_<NAME>` in the environment or `<name>` in the settings file."""

    home: Path = Path(".proctor")
    """Folder of the store, the blobs and the caches."""
    store: str = ""
    """Address of the store; empty: SQLite at `<home>/proctor.db`."""
    output_dir: Path = Path("results")
    """Where experiment run folders go when the spec does not say."""
    rollouts_dir: Path = Path("data/rollouts")
    """Where rollout folders go when the spec does not say."""
    sandbox: str = "auto"
    """Back end when the spec does not say; `SANDBOX_BACKEND` is understood too."""
    lease_s: float = 30.0
    """How long a worker that went silent keeps its trials."""
    experiments: str = ""
    """Folders or modules with experiments, separated by the path separator, besides the built-in ones."""
    baselines: Path = Path("proctor-baselines.json")
    """The file of pinned baselines; it may live in git."""
    model_base_url: str = ""
    """OpenAI-compatible endpoint of the built-in agents."""
    model_api_key: str = ""
    """Key for that endpoint. Never logged, never inside a sandbox."""

    @property
    def store_url(self) -> str:
        """Where the store is."""
        return self.store or str(self.home / "proctor.db")

    @property
    def blobs_dir(self) -> Path:
        """Where blobs are kept."""
        return self.home / "blobs"

    @property
    def cache_dir(self) -> Path:
        """Where what can be made again is kept: images, digests."""
        return self.home / "cache"


SECRET_FIELDS = frozenset({"model_api_key", "store"})
_ALIASES = {"SANDBOX_BACKEND": "sandbox"}


def load_settings(environ: Mapping[str, str] | None = None, file: Path | None = None) -> Settings:
    """Defaults, then `proctor.toml` (or PROCTOR_SETTINGS), then the environment; the last wins."""
    environ = os.environ if environ is None else environ
    path = file or Path(environ.get("PROCTOR_SETTINGS", "proctor.toml"))
    values: dict[str, Any] = {}
    if path.is_file():
        values |= _from_file(path)
    elif file or "PROCTOR_SETTINGS" in environ:
        msg = f"{path}: the settings file does not exist"
        raise UsageError(msg)
    for alias, name in _ALIASES.items():
        if environ.get(alias):
            values[name] = environ[alias]
    for each in fields(Settings):
        if environ.get(f"PROCTOR_{each.name.upper()}"):
            values[each.name] = environ[f"PROCTOR_{each.name.upper()}"]
    return Settings(**{name: _convert(name, value) for name, value in values.items()})


def _from_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        values = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{path}: not valid TOML: {error}"
        raise UsageError(msg) from error
    known = {each.name for each in fields(Settings)}
    for name in values:
        if name not in known:
            msg = f"{path}: '{name}' is not a setting; settings are {', '.join(sorted(known))}"
            raise UsageError(msg)
    return values


def _convert(name: str, value: Any) -> Any:
    kind = {each.name: each.type for each in fields(Settings)}[name]
    try:
        if kind == "Path":
            return Path(value).expanduser()
        if kind == "float":
            return float(value)
    except (TypeError, ValueError):
        msg = f"setting '{name}': {value!r} is not a {kind.lower()}"
        raise UsageError(msg) from None
    return str(value)
