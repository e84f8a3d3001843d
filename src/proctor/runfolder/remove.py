"""Remove the folder of a run. What is not surely the run's own, or holds something else, is kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from proctor.model.place import safe_name
from proctor.store.refs import run_id_of_folder


def is_run_folder(folder: Path, run_id: str) -> bool:
    """Whether `write.claim_folder` made it for the run: a real folder with the run's id as its name.

    Its manifest names the run as well; a name alone could be anybody's.
    """
    named = re.fullmatch(re.escape(safe_name(run_id)) + r"(-\d+)?", folder.name)
    return bool(named) and not folder.is_symlink() and run_id_of_folder(folder) == run_id


def remove_run_folder(folder: Path, run_id: str, spared: Iterable[Path]) -> str:
    """Remove it; why it was kept, or '' when it is gone.

    `spared` are folders that must stay: it may neither be one of them nor hold one.
    """
    if not folder.is_dir():
        return ""
    if not is_run_folder(folder, run_id):
        return "its name and its manifest do not both name this run"
    own = folder.resolve()
    if inside := next((path for path in map(Path.resolve, spared) if path.is_relative_to(own)), None):
        return f"it is or holds {inside}, which is in use"
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return f"it cannot be removed ({error.strerror}); remove it manually"
    return ""
