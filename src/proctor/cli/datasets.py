"""`proctor datasets`: what the registries offer and what is here; fetch, remove."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.settings import Settings
    from proctor.tasks.fetch import Fetched


@click.group("datasets")
def command() -> None:
    """Datasets of tasks: list what registries offer, fetch, remove."""


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_datasets(as_json: bool) -> int:
    """List the datasets that the registries offer and those that are here."""
    from proctor.cli.table import print_json, print_table, printable
    from proctor.settings import load_settings

    rows = _rows(load_settings())
    if as_json:
        print_json(rows)
    elif rows:
        table = [
            (
                each["tasks"],
                f"{each['bytes'] / 1e6:.1f} MB" if each["cached"] else "no",
                printable(_short(each["reference"])),
                printable(each["from"]) if each["version"] else "",
            )
            for each in rows
        ]
        print_table(("tasks", "here", "dataset", "from"), table, right=(0, 1))
    else:
        print("No datasets. Name a registry file in the setting dataset_registries,")
        print("or fetch from git: proctor datasets pull git+https://HOST/REPO.git@COMMIT#PATH")
    return Exit.OK


@command.command("pull")
@click.argument("references", metavar="NAME@VERSION...", nargs=-1, required=True)
def pull(references: tuple[str, ...]) -> int:
    """Fetch datasets: NAME@VERSION of a registry, or git+https://HOST/REPO.git@COMMIT#PATH.

    A copy that is here already is checked, and fetched again when it was changed.
    """
    from proctor.settings import load_settings
    from proctor.tasks.fetch import DatasetCache, Datasets

    settings = load_settings()
    datasets = Datasets(
        cache_dir=settings.cache_dir,
        registries=settings.dataset_registries,
        progress=_progress if sys.stderr.isatty() else None,
    )
    for each in references:
        fetched = datasets.fetch(datasets.pin(each, fresh=True), again=True)
        place = DatasetCache(settings.cache_dir).path(fetched)
        print(f"{fetched.reference}: {_tasks(fetched.tasks)}, {fetched.bytes / 1e6:.1f} MB, in {place}")
    return Exit.OK


@command.command("rm")
@click.argument("references", metavar="NAME@VERSION...", nargs=-1, required=True)
def remove(references: tuple[str, ...]) -> int:
    """Remove datasets that were fetched; a run that needs one fetches it again."""
    from proctor.errors import NotFoundError
    from proctor.settings import load_settings
    from proctor.tasks.address import redacted
    from proctor.tasks.fetch import DatasetCache, to_stderr

    cache = DatasetCache(load_settings().cache_dir)
    here: dict[str, list[Fetched]] = {}
    for fetched in cache.all():
        for known in {fetched.reference, _short(fetched.reference)}:
            here.setdefault(known, []).append(fetched)
    for each in references:
        if each not in here:
            raise NotFoundError(f"no dataset '{redacted(each)}' is here; see: proctor datasets ls")
    for each in references:
        for fetched in here[each]:
            cache.remove(fetched.key, to_stderr)
            print(f"removed {each} ({fetched.bytes / 1e6:.1f} MB)")
    return Exit.OK


def _rows(settings: Settings) -> list[dict[str, Any]]:
    """One row for each dataset: from the registries first, then what is here beside them."""
    from proctor.errors import FetchError
    from proctor.tasks.fetch import DatasetCache, to_stderr
    from proctor.tasks.registry import read_registry

    here = {(each.reference, each.source): each for each in DatasetCache(settings.cache_dir).all()}
    rows: list[dict[str, Any]] = []
    for source in settings.dataset_registries:
        try:
            offered = read_registry(source, settings.cache_dir, to_stderr)
        except FetchError as error:
            to_stderr(f"note: {error}")
            continue
        rows += [
            _row(
                each.reference, each.registry, len(each.rows), here.pop((each.reference, each.registry), None)
            )
            | {"description": each.description}
            for each in offered
        ]
    return rows + [_row(each.reference, each.source, each.tasks, each) for each in here.values()]


def _row(reference: str, source: str, tasks: int, fetched: Fetched | None) -> dict[str, Any]:
    from proctor.tasks.address import PREFIX

    named = not reference.startswith(PREFIX)
    name, _, version = reference.partition("@") if named else (reference, "", "")
    return {
        "reference": reference,
        "name": name,
        "version": version,
        "tasks": tasks,
        "from": source,
        "description": "",
        "cached": fetched is not None,
        "bytes": fetched.bytes if fetched else 0,
        "fetched_at": fetched.fetched_at if fetched else None,
    }


def _short(reference: str) -> str:
    """As the table shows it: with the first digits of a commit, which say enough."""
    return re.sub(r"@([0-9a-f]{12})[0-9a-f]{28,52}(?=#|$)", r"@\1", reference)


def _tasks(count: int) -> str:
    return f"{count:,} task{'' if count == 1 else 's'}"


def _progress(line: str) -> None:
    from proctor.cli.terminal import progress

    progress(f"  {line}")
