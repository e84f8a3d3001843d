"""`proctor images`: list, pull from a registry, make ready for a run, import, remove what nothing uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proctor.sandbox.image.layered import LayeredImages
    from proctor.sandbox.image.layers import Collected

_DAY_S = 86_400.0
T = TypeVar("T")


@click.group("images")
def command() -> None:
    """Images for sandboxes: list, pull, make ready for a run, import from a file, remove what is unused."""


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_images(as_json: bool) -> int:
    """List the images that are here."""
    from dataclasses import asdict

    from proctor.cli.table import print_json, print_table, printable, say
    from proctor.sandbox.image.references import References
    from proctor.settings import load_settings

    references = References(load_settings().cache_dir / "images" / "references")
    found = sorted(references.all(), key=lambda image: image.reference)
    if as_json:
        print_json([asdict(image) for image in found])
    elif found:
        from proctor.cli.show import size_text

        rows = [
            (
                printable(each.reference),
                each.pin[7:19],
                len(each.layers),
                size_text(each.size_bytes) if each.size_bytes else "–",
                each.source,
            )
            for each in found
        ]
        print_table(("image", "digest", "layers", "size", "from"), rows, right=(2, 3), whole=(1,))
    else:
        say("No images yet. Get one with 'proctor images pull REF' or 'proctor images import FILE'.")
    return Exit.OK


@command.command("pull")
@click.argument("refs", metavar="[REF]...", nargs=-1)
@click.option(
    "--for",
    "tasks",
    multiple=True,
    metavar="TASKS",
    help="Pull every image that tasks name: a task folder, a folder of tasks or a ZIP. May be repeated.",
)
@click.option("--platform", default="", metavar="OS/ARCH", help="Another platform than this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pull_images(refs: tuple[str, ...], tasks: tuple[str, ...], platform: str, as_json: bool) -> int:
    """Pull images from their registries, or refresh those that are here.

    REF is a name as docker knows it: ubuntu:24.04, ghcr.io/owner/name:tag, name@sha256:…
    Layers that are here already are not downloaded. Logins of docker and podman are used.
    """
    import sys

    from proctor.cli.images_pull import check_names, names_for, pull_all
    from proctor.cli.table import printable
    from proctor.sandbox.image.manifest import parse_platform
    from proctor.settings import load_settings

    needed, problems = names_for(tasks, load_settings().cache_dir) if tasks else ([], [])
    names = list(dict.fromkeys((*refs, *needed)))
    wanted = parse_platform(platform) if platform else None
    if tasks and not names and not problems:
        print("These tasks need no image from a registry.")
        return Exit.OK
    check_names(names)
    for problem in problems:
        print(f"skipped {printable(problem)}", file=sys.stderr)
    return _with_images(lambda images: pull_all(images, names, wanted, as_json=as_json))


@command.command("warm")
@click.argument("what", metavar="SPEC|TASKS|RUN")
@click.option(
    "--parallel",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="N",
    help="Images that are made ready at a time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def warm_images(what: str, parallel: int, as_json: bool) -> int:
    """Make all images ready on this machine that a spec, tasks or a run need.

    WHAT is the file of a spec, a task folder, a folder of tasks, a ZIP, or a run by id or name. Images are
    pulled, built, or taken from another machine that has offered its build. Exit code 4: some image could not
    be made ready; 1: a task has to be repaired.
    """
    from proctor.cli.images_warm import warm_all

    return warm_all(what, parallel=parallel, as_json=as_json)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="", metavar="NAME:TAG", help="Name for the image. [as the file says]")
def import_image(file: Path, name: str) -> int:
    """Import an image from FILE: written by 'podman save' or 'docker save', or an OCI layout."""
    from proctor.sandbox.image.oci import import_image

    for image in _with_images(lambda images: import_image(images.store, images.references, file, name=name)):
        print(f"{image.reference}  {image.id[:12]}  {len(image.layers)} layers")
    return Exit.OK


@command.command("gc")
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Remove what was unused for this many days.",
)
@click.option(
    "--max-gb",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="Keep at most this many gigabytes.",
)
@click.option("--imported", is_flag=True, help="Remove images too that were imported or pulled by hand.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def collect(days: float, max_gb: float, imported: bool, as_json: bool) -> int:
    """Remove layers that were unused for long, and the oldest ones when there are too many."""
    import time
    from dataclasses import asdict

    def removing(images: LayeredImages) -> Awaitable[Collected]:
        from proctor.sandbox.image.layers import collect_garbage

        return collect_garbage(
            images.store,
            images.references,
            now=time.time(),
            max_age_s=days * _DAY_S,
            max_bytes=int(max_gb * 1e9),
            imported=imported,
        )

    done = _with_images(removing)
    if as_json:
        from proctor.cli.table import print_json

        print_json(asdict(done))
        return Exit.OK
    print(f"removed {done.removed} layers ({done.removed_bytes / 1e6:.1f} MB)")
    print(f"kept {done.kept} layers ({done.kept_bytes / 1e6:.1f} MB)")
    for name in done.forgotten:
        print(f"no longer here: {name}")
    return Exit.OK


def _with_images(work: Callable[[LayeredImages], Awaitable[T]]) -> T:
    """Do something with the layers of this account, and with a back end that may act on them."""
    import asyncio

    from proctor.sandbox.bubblewrap import Bubblewrap
    from proctor.sandbox.image.layered import LayeredImages
    from proctor.settings import load_settings

    async def opened() -> T:
        settings = load_settings()
        backend = Bubblewrap(settings.home / "sandboxes", network_allow=settings.network_allow)
        try:
            return await work(LayeredImages(settings.cache_dir / "images", backend))
        finally:
            await backend.close()

    return asyncio.run(opened())
