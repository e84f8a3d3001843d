"""The folders of a trial: made when needed, kept when something is in them. Names are text all along."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from proctor.trial.forkserver.output import Output


def make_folder(folder: str) -> None:
    """Make a folder and those above it, unless it is there."""
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - see the top


def remove_tree(folder: str) -> None:
    """Remove a folder and all in it, when it is there."""
    # Loaded when there is something to remove: it imports every archive format there is.
    if os.path.lexists(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def empty_folder(folder: str) -> None:
    """Remove what is in a folder; the folder stays, or comes to be again."""
    if _list(folder) != []:
        remove_tree(folder)
        make_folder(folder)


def has_files(folder: str) -> bool:
    """Whether a trial left anything; an empty folder is removed."""
    found = _list(folder)
    if found == []:
        try:
            os.rmdir(folder)  # noqa: PTH106 - see the top
        except OSError:
            return False
    return bool(found)


def keep_output(outputs: Iterable[Output], folder: str) -> int:
    """Write each stream that has something beside the trial's own files; the folder may have been deleted."""
    total_bytes = 0
    for output in outputs:
        if output.total_bytes:
            total_bytes += output.total_bytes
            try:
                make_folder(folder)
                with open(f"{folder}/{output.name}.txt", "wb") as file:  # noqa: PTH123 - see the top
                    file.write(output.text())
            except OSError:
                # On a full disk the measurement is still worth keeping without it.
                continue
    return total_bytes


def _list(folder: str) -> list[str] | None:
    try:
        return os.listdir(folder)  # noqa: PTH208 - see the top
    except OSError:
        return None
