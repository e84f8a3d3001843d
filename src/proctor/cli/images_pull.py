"""What `proctor images pull` does: find the names, pull one image after the other, show how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from proctor.cli.show import size_text
from proctor.cli.table import printable
from proctor.cli.terminal import progress as draw
from proctor.errors import Exit, ImageError, TaskError, UsageError

if TYPE_CHECKING:
    from proctor.sandbox.image.layered import LayeredImages
    from proctor.sandbox.image.manifest import Platform
    from proctor.sandbox.image.registry.pull import Progress, Pulled

_SHOW_EVERY_S = 0.2
_WIDTH = 24


def names_for(places: Sequence[str], cache_dir: Path) -> tuple[list[str], list[str]]:
    """The images that tasks need, and a line for each task that cannot be read."""
    from proctor.model.spec import TaskEntry
    from proctor.sandbox.image.definition import needed_images
    from proctor.tasks.dataset import find_tasks

    names: dict[str, None] = {}
    problems = []
    for place in places:
        found = find_tasks(TaskEntry(path=place), Path.cwd(), cache_dir)
        problems += [f"{each.name}: {each.error}" for each in found.broken]
        for task in found.tasks:
            try:
                names |= dict.fromkeys(needed_images(task))
            except TaskError as error:
                problems.append(f"{task.name}: {error}")
    return list(names), problems


async def pull_all(
    images: LayeredImages, names: Sequence[str], platform: Platform | None, *, as_json: bool
) -> int:
    """Pull every image; one that is not available does not stop the others."""
    from proctor.cli.table import print_json
    from proctor.sandbox.image.registry.access import access_of
    from proctor.sandbox.image.registry.client import Client
    from proctor.sandbox.image.registry.pull import pull
    from proctor.settings import load_settings

    rows: list[dict[str, Any]] = []
    failed = 0
    async with Client(access_of(load_settings())) as client:
        for number, name in enumerate(names, 1):
            with _Line(f"[{number}/{len(names)}] " if len(names) > 1 else "") as line:
                try:
                    done = await pull(
                        client,
                        images.store,
                        images.references,
                        name,
                        platform=platform,
                        kept=True,
                        on_progress=line.show,
                    )
                except ImageError as error:
                    failed += 1
                    rows.append({"image": name, "error": str(error)})
                    line.end()
                    print(f"proctor: {printable(error)}", file=sys.stderr, flush=True)
                    continue
            rows.append(_row(done))
            if not as_json:
                print(f"{line.prefix}{_text(done)}", flush=True)
    if as_json:
        print_json(rows)
    return Exit.INFRASTRUCTURE if failed else Exit.OK


def check_names(names: Sequence[str]) -> None:
    """UsageError for the first that is not the name of an image, before anything starts."""
    from proctor.sandbox.image.references import parse

    for name in names:
        parse(name)
    if not names:
        raise UsageError("no image is named; write REF, or --for with a folder of tasks that name images")


def _row(done: Pulled) -> dict[str, Any]:
    image = done.image
    return {
        "image": image.reference,
        "digest": image.digest,
        "id": image.id,
        "platform": image.platform,
        "layers": len(image.layers),
        "new_layers": done.new_layers,
        "downloaded_bytes": done.downloaded_bytes,
        "size_bytes": image.size_bytes,
    }


def _text(done: Pulled) -> str:
    image = done.image
    what = (
        f"{done.new_layers} of {len(image.layers)} layers new, {size_text(done.downloaded_bytes)} downloaded"
    )
    return f"{printable(image.reference)}  {image.digest[:19]}  {what if done.new_layers else 'up to date'}"


class _Line:
    """A line on the terminal that changes; without a terminal nothing until an image is done."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._shown = 0.0
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def show(self, progress: Progress) -> None:
        """Draw it again, not too often."""
        now = time.monotonic()
        if not self._live or now - self._shown < _SHOW_EVERY_S:
            return
        self._shown = now
        share = progress.bytes / progress.total_bytes if progress.total_bytes else 0.0
        bar = "█" * round(share * _WIDTH)
        rate = size_text(int(progress.downloaded_bytes / max(1e-9, now - self._began)))
        text = (
            f"{self.prefix}{_short(progress.reference)} {bar:░<{_WIDTH}} "
            f"{size_text(progress.bytes)} of {size_text(progress.total_bytes)}, {rate}/s"
        )
        draw(text, room=200)
        self._drawn = True

    def end(self) -> None:
        """Leave nothing behind."""
        if self._drawn:
            draw()
            self._drawn = False


def _short(name: str) -> str:
    """The end of a name, which tells it from the others."""
    return name if len(name) <= 24 else f"…{name[-23:]}"
