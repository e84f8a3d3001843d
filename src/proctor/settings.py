"""Frozen settings from the environment and an optional file; read in one place, passed on as a value."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is `PROCTOR_<NAME>` in the environment or `<name>` in the settings file."""

    home: Path = Path(".proctor")
    """Folder of the store, the blobs and the caches."""
    store: str = ""
    """Address of the store; empty: SQLite at `<home>/proctor.db`."""
    blobs: str = ""
    """Address of the blobs: a folder, `file:///FOLDER` or `s3://BUCKET/PREFIX`; empty: `<home>/blobs`."""
    blob_cache_bytes: int = 10_000_000_000
    """The most that copies of blobs from S3 may take at `<home>/cache/blobs`; 0: none are kept."""
    broker: str = ""
    """Address of a message broker (`redis://`, `rediss://`, `amqp://`): with one, workers execute runs."""
    output_dir: Path = Path("results")
    """Default folder for the run folders of experiments."""
    rollouts_dir: Path = Path("data/rollouts")
    """Default folder for rollout folders."""
    sandbox: str = "auto"
    """Default sandbox back end; `SANDBOX_BACKEND` is accepted too."""
    lease_s: float = 30.0
    """How long a worker without a heartbeat keeps its trials."""
    experiments: str = ""
    """Folders or modules with experiments, separated by the path separator, besides the built-in ones."""
    baselines: Path = Path("proctor-baselines.json")
    """The file of pinned baselines; commit it to git to share it."""
    keys_dir: Path = Path("~/.config/proctor/keys")
    """Folder of the private keys that sign receipts; only its owner may open it."""
    network_allow: tuple[str, ...] = ()
    """Addresses, ranges and names outside the internet that public networks may reach: a package mirror."""
    ca_bundle: str = ""
    """File of certificates that sandboxes, builds and requests to registries and models trust as well."""
    share_builds: bool = False
    """Whether images that are built here are offered to other machines of the store, and theirs are taken."""
    share_builds_layer_mb: int = 2048
    """The largest layer, unpacked, that is offered to other machines."""
    registry_mirrors: tuple[str, ...] = ()
    """Registry mirrors that are tried first, as `docker.io=mirror.example:5000`."""
    plain_http_registries: tuple[str, ...] = ()
    """Registries (`host:port`) that use plain HTTP; registries on loopback may too."""
    registry_logins: tuple[str, ...] = ()
    """Projects of a server that may use its logins for registries: `ghcr.io/acme=team`, `docker.io=*`."""
    dataset_registries: tuple[str, ...] = ()
    """Registry files of datasets in Harbor's format: paths or addresses."""
    model_base_url: str = ""
    """OpenAI-compatible endpoint of the built-in agents."""
    model_api_key: str = ""
    """Key for that endpoint. Never logged, never inside a sandbox."""
    providers: Mapping[str, Any] = field(default_factory=dict)
    """Table of model providers besides the known ones, `[providers.NAME]`; or a file of such tables."""
    prices: str = ""
    """File of model prices that extends the table of Proctor's own."""
    day_budget_usd: float | None = None
    """The most, in dollars, that all runs of the store may spend on models in a day (UTC)."""
    day_budget_tokens: int | None = None
    """The most tokens that all runs of the store may use in a day."""
    day_budget_requests: int | None = None
    """The most calls of models that all runs of the store may make in a day."""

    serve_parallel: int = 0
    """How many trials `proctor serve` executes at a time; 0: one per processor, or none with a broker."""
    serve_rate: float = 100.0
    """Requests a second that one token may make of a server, on average; bursts may be five times that."""
    serve_cpus: float = 0.0
    """The most processors that a spec or task of the API may ask for; 0: all of this machine."""
    serve_memory_bytes: int = 0
    """The most memory that a sandbox may be asked to have through the API; 0: all of this machine."""
    serve_storage_bytes: int = 0
    """The most disk that a sandbox may be asked to have through the API; 0: the disk of `<home>`."""
    serve_pids: int = 0
    """The most processes that a sandbox may be asked to have through the API; 0: as many as the kernel's."""
    serve_companions: int = 20
    """The most services beside the agent's that the compose file of an uploaded task may have."""
    serve_uploads: int = 10_000
    """The most tasks that a project may keep uploaded."""
    serve_upload_bytes: int = 100_000_000_000
    """The most bytes of uploaded ZIPs that a project may keep."""
    serve_hosts: tuple[str, ...] = ()
    """Host names under which a server answers, besides its address and loopback's."""

    serve_url: str = ""
    """Address under which people reach the server, for links in webhooks and comments; empty: no links.

    With `https` session cookies are for TLS alone.
    """
    webhook_allow: tuple[str, ...] = ()
    """Addresses, ranges and names outside the internet that the webhooks of a server may reach."""

    url: str = ""
    """Address of a Proctor server that commands talk to; `local` or empty: the store of this machine."""
    token: str = ""
    """Token for that server."""
    login_file: Path = Path("~/.config/proctor/servers.json")
    """The file in which `proctor login` keeps servers and tokens; only its owner may read it."""

    oidc_issuer: str = ""
    """OpenID Connect issuer through which people sign in to a server; empty: with tokens only."""
    oidc_client_id: str = ""
    """The name under which the server is registered with the issuer."""
    oidc_client_secret: str = ""
    """The server's own secret with the issuer; empty for a public client."""
    oidc_scopes: tuple[str, ...] = ("openid", "email", "profile")
    """What the server asks the issuer for."""
    oidc_user_claim: str = "email"
    """The claim that names a user; `email` counts only when the issuer has verified it."""
    oidc_groups_claim: str = "groups"
    """The claim that lists a user's groups."""
    oidc_projects: tuple[str, ...] = ()
    """What groups may do: `GROUP=PROJECT:read+run`; `*=PROJECT` for everybody, `GROUP=*:admin` for admins."""
    otel_endpoint: str = ""
    """Address of an OpenTelemetry collector (OTLP over HTTP) to which a server sends traces; empty: none."""

    @property
    def store_url(self) -> str:
        """Where the store is."""
        return self.store or str(self.home / "proctor.db")

    @property
    def blobs_url(self) -> str:
        """Where blobs are kept."""
        return self.blobs or str(self.home / "blobs")

    @property
    def cache_dir(self) -> Path:
        """Where what can be made again is kept: images, digests."""
        return self.home / "cache"


SECRET_FIELDS = frozenset({"broker", "model_api_key", "oidc_client_secret", "store", "token"})
_MOST_BYTES = 1 << 20
_ALIASES = {"SANDBOX_BACKEND": "sandbox"}


def load_settings(environ: Mapping[str, str] | None = None, file: Path | None = None) -> Settings:
    """Defaults, then `proctor.toml` (or PROCTOR_SETTINGS), then the environment; the last wins."""
    environ = os.environ if environ is None else environ
    path = file or Path(environ.get("PROCTOR_SETTINGS", "proctor.toml"))
    values: dict[str, Any] = {}
    if path.is_file():
        values |= _from_file(path)
    elif file or "PROCTOR_SETTINGS" in environ:
        raise UsageError(f"{path}: the settings file does not exist")
    for alias, name in _ALIASES.items():
        if environ.get(alias):
            values[name] = environ[alias]
    for each in fields(Settings):
        if environ.get(f"PROCTOR_{each.name.upper()}"):
            values[each.name] = environ[f"PROCTOR_{each.name.upper()}"]
    return Settings(**{name: _convert(name, value) for name, value in values.items()})


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(read_small(path, _MOST_BYTES).decode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error


def _from_file(path: Path) -> dict[str, Any]:
    values = _toml(path)
    known = {each.name for each in fields(Settings)}
    for name in values:
        if name not in known:
            raise UsageError(f"{path}: '{name}' is not a setting; settings are {', '.join(sorted(known))}")
    return values


def _convert(name: str, value: Any) -> Any:
    kind = {each.name: each.type for each in fields(Settings)}[name]
    try:
        if kind == "Path":
            return Path(value).expanduser()
        if kind.startswith(("float", "int")):
            return _amount(str(kind), value)
        if kind.startswith("tuple"):
            return _texts(value)
        if kind.startswith("Mapping"):
            return value if isinstance(value, Mapping) else _toml(Path(value).expanduser())
    except (TypeError, ValueError):
        raise UsageError(f"setting '{name}': {value!r} is not a {kind.partition(' |')[0].lower()}") from None
    return str(value)


def _amount(kind: str, value: Any) -> float | int:
    found = int(value) if kind.startswith("int") else float(value)
    if kind.endswith("None") and not 0 <= found < math.inf:
        raise ValueError
    return found


def _texts(value: Any) -> tuple[str, ...]:
    """A list of a file, or words of the environment between commas or spaces."""
    if isinstance(value, list):
        if not all(isinstance(each, str) for each in value):
            raise TypeError
        return tuple(value)
    return tuple(str(value).replace(",", " ").split())
