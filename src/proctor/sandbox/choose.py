"""From a name to a back end. New ones are one line in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import SandboxError, UsageError
from proctor.sandbox.base import Backend, RootOptions
from proctor.sandbox.certificates import CaBundle

if TYPE_CHECKING:
    from proctor.sandbox.image.images import Images


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of sandbox: how to open it, and a quick look at whether it could work here."""

    open: Callable[[Path, Sequence[str], CaBundle | None], Backend]
    """With a folder for its state, what its networks may reach beyond the internet, and whom it trusts."""
    obstacle: Callable[[], str]
    """Why it cannot work here, or nothing."""
    images: Callable[[Path, Backend, RootOptions], Images]
    """What makes roots for its sandboxes, with a folder for what it keeps."""
    host_root: bool = True
    """Whether its sandboxes can have this machine's own system as root."""


def _open_bubblewrap(home: Path, network_allow: Sequence[str], ca_bundle: CaBundle | None) -> Backend:
    from proctor.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap(home, network_allow=network_allow, ca_bundle=ca_bundle)


def _bubblewrap_obstacle() -> str:
    from proctor.sandbox.userns import obstacle

    return obstacle()


def _layered_images(cache_dir: Path, backend: Backend, options: RootOptions) -> Images:
    from proctor.sandbox.bubblewrap import Bubblewrap
    from proctor.sandbox.image.layered import LayeredImages

    assert isinstance(backend, Bubblewrap)
    return LayeredImages(cache_dir, backend, options)


def _open_fake(home: Path, network_allow: Sequence[str], ca_bundle: CaBundle | None) -> Backend:
    from proctor.sandbox.fake import Fake

    del home, network_allow, ca_bundle
    return Fake()


def _no_images(cache_dir: Path, backend: Backend, options: RootOptions) -> Images:
    from proctor.sandbox.image.images import SettingsOnly

    del cache_dir, backend, options
    return SettingsOnly()


def _containers(name: str) -> Kind:
    """Sandboxes that are containers of an engine."""

    def opened(home: Path, network_allow: Sequence[str], ca_bundle: CaBundle | None) -> Backend:
        from proctor.sandbox.container.backend import Containers
        from proctor.sandbox.container.engine import DOCKER, PODMAN

        engine = {"podman": PODMAN, "docker": DOCKER}[name]
        return Containers(engine, home, network_allow=network_allow, ca_bundle=ca_bundle)

    def obstacle() -> str:
        from proctor.sandbox.container.engine import DOCKER, PODMAN

        return {"podman": PODMAN, "docker": DOCKER}[name].obstacle()

    def images(cache_dir: Path, backend: Backend, options: RootOptions) -> Images:
        from proctor.sandbox.container.backend import Containers
        from proctor.sandbox.container.images import ContainerImages

        assert isinstance(backend, Containers)
        return ContainerImages(cache_dir, backend, options)

    return Kind(open=opened, obstacle=obstacle, images=images, host_root=False)


def _harbor(name: str) -> Kind:
    """Sandboxes that are environments of Harbor's."""

    def opened(home: Path, network_allow: Sequence[str], ca_bundle: CaBundle | None) -> Backend:
        from proctor.sandbox.harbor.backend import HarborBackend

        del network_allow, ca_bundle
        return HarborBackend(name, home)

    def obstacle() -> str:
        from proctor.sandbox.harbor.backend import obstacle

        return obstacle(name)

    def images(cache_dir: Path, backend: Backend, options: RootOptions) -> Images:
        from proctor.sandbox.harbor.backend import HarborImages

        del cache_dir, backend, options
        return HarborImages()

    return Kind(open=opened, obstacle=obstacle, images=images, host_root=False)


BACKENDS: dict[str, Kind] = {
    "bubblewrap": Kind(open=_open_bubblewrap, obstacle=_bubblewrap_obstacle, images=_layered_images),
    "podman": _containers("podman"),
    "docker": _containers("docker"),
    "fake": Kind(open=_open_fake, obstacle=lambda: "", images=_no_images),
}
HARBOR = "harbor:"
"""How the names of Harbor's environments begin."""
AUTO = ("bubblewrap", "podman", "docker")
"""What `auto` tries, in this order."""


def kind_of(name: str) -> Kind:
    """The kind of a chosen back end."""
    return _harbor(name.removeprefix(HARBOR)) if name.startswith(HARBOR) else BACKENDS[name]


def choose(name: str) -> str:
    """The back end with this name; `auto` is the first that works here, `modal` means `harbor:modal`."""
    if name == "auto":
        reasons = []
        for each in AUTO:  # one after the other: each look imports its back end
            if not (obstacle := BACKENDS[each].obstacle()):
                return each
            reasons.append(f"{each}: {obstacle}")
        raise SandboxError(f"no kind of sandbox works here ({'; '.join(reasons)}); see `proctor doctor`")
    if name in BACKENDS or (name.startswith(HARBOR) and name != HARBOR):
        return name
    from proctor.sandbox.harbor.backend import KNOWN

    if name in KNOWN:
        return f"{HARBOR}{name}"
    import difflib

    near = difflib.get_close_matches(name, [*BACKENDS, *KNOWN, "auto"], n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    known = ", ".join(sorted(BACKENDS))
    raise UsageError(f"'{name}' is not a sandbox; there are auto, {known} and harbor:NAME{hint}")


def open_backend(
    name: str, home: Path, *, network_allow: Sequence[str] = (), ca_bundle: CaBundle | None = None
) -> Backend:
    """Open a back end by name; `home` is where its state and caches go.

    Its networks reach the internet and what `network_allow` opens beyond it; its sandboxes trust `ca_bundle`.
    """
    return kind_of(choose(name)).open(home, network_allow, ca_bundle)


def open_images(backend: Backend, cache_dir: Path, options: RootOptions | None = None) -> Images:
    """What makes the roots of a back end's sandboxes."""
    return kind_of(backend.name).images(cache_dir, backend, options or RootOptions())


def check_host_root(name: str) -> None:
    """UsageError when the sandboxes of a back end cannot have this machine's own system as root."""
    chosen = choose(name)
    if not kind_of(chosen).host_root:
        raise UsageError(
            f"host root works with bubblewrap only, and the sandbox is {chosen}: remove sandbox.host_root "
            f"from the spec (--host-root in a terminal), or choose bubblewrap"
        )
