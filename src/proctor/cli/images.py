"""`proctor images`: those whose layers are here; bring one from a file, remove what nothing uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proctor.sandbox.image.layered import LayeredRoots

    Close = Callable[[], Awaitable[None]]

_DAY_S = 86_400.0


@click.group("images")
def command() -> None:
    """Images for sandboxes: list, import from a file, remove what is unused."""


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_images(as_json: bool) -> int:
    """List the images that are here."""
    from dataclasses import asdict

    from proctor.cli.table import print_json, print_table, printable
    from proctor.sandbox.image.references import References
    from proctor.settings import load_settings

    found = list(References(load_settings().cache_dir / "images" / "references").all())
    if as_json:
        print_json([asdict(image) for image in found])
    elif found:
        rows = [(printable(each.reference), each.id[:12], len(each.layers), each.source) for each in found]
        print_table(("image", "id", "layers", "from"), rows, right=(2,))
    else:
        print("No images yet. Bring one with 'proctor images import FILE'.")
    return Exit.OK


@command.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="", metavar="NAME:TAG", help="Name it so; otherwise as the file says.")
def import_image(file: Path, name: str) -> int:
    """Bring an image from FILE: what 'podman save' or 'docker save' wrote, or an OCI layout."""
    import asyncio

    async def work() -> None:
        from proctor.sandbox.image.oci import bring

        roots, close = _open()
        try:
            for image in await bring(roots.store, roots.references, file, name=name):
                print(f"{image.reference}  {image.id[:12]}  {len(image.layers)} layers")
        finally:
            await close()

    asyncio.run(work())
    return Exit.OK


@command.command("gc")
@click.option("--days", type=click.FloatRange(0), default=30.0, show_default=True, help="Unused for so long.")
@click.option(
    "--max-gb", type=click.FloatRange(0), default=20.0, show_default=True, help="Keep at most so much."
)
@click.option("--imported", is_flag=True, help="Remove imported images too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def collect(days: float, max_gb: float, imported: bool, as_json: bool) -> int:
    """Remove layers that nothing has used for long, and the oldest when there are too many."""
    import asyncio
    import time
    from dataclasses import asdict

    from proctor.sandbox.image.collect_garbage import Collected, collect_garbage

    async def work() -> Collected:
        roots, close = _open()
        try:
            return await collect_garbage(
                roots.store,
                roots.references,
                now=time.time(),
                max_age_s=days * _DAY_S,
                max_bytes=int(max_gb * 1e9),
                imported=imported,
            )
        finally:
            await close()

    done = asyncio.run(work())
    if as_json:
        from proctor.cli.table import print_json

        print_json(asdict(done))
        return Exit.OK
    print(f"removed {done.removed} layers ({done.removed_bytes / 1e6:.1f} MB)")
    print(f"kept {done.kept} layers ({done.kept_bytes / 1e6:.1f} MB)")
    for name in done.forgotten:
        print(f"no longer here: {name}")
    return Exit.OK


def _open() -> tuple[LayeredRoots, Close]:
    """The layers of this account, with a back end that may act on them."""
    from proctor.sandbox.bubblewrap import Bubblewrap
    from proctor.sandbox.image.layered import LayeredRoots
    from proctor.settings import load_settings

    settings = load_settings()
    backend = Bubblewrap(settings.home / "sandboxes")
    return LayeredRoots(settings.cache_dir / "images", backend), backend.close
