"""How a person names a run: an id or its beginning, a name, `latest`, `latest~2`, or the run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proctor.errors import NotFoundError, UsageError
from proctor.store import queries
from proctor.store.database import Database
from proctor.store.rows import column

MANIFEST = "manifest.json"
_SHORTEST_PREFIX = 3


def resolve(db: Database, ref: str) -> str:
    """The id of the run that `ref` means."""
    ref = column(ref).strip()
    if not ref:
        raise UsageError("name a run: its id, the beginning of its id, its name, 'latest' or its folder")
    if found := _one(db, "SELECT id FROM runs WHERE id = :run", run=ref):
        return found
    name, nth = _steps_back(ref)
    if name == "latest":
        if found := _one(db, queries.NTH_NEWEST, nth=nth):
            return found
        raise NotFoundError(
            _nothing(db, ref, "there are not that many runs" if nth else "there are no runs yet")
        )
    found = (
        _one(db, queries.NEWEST_NAMED, name=name, nth=nth) or _by_prefix(db, ref) or _by_folder(db, Path(ref))
    )
    if not found:
        raise NotFoundError(_nothing(db, ref, _nearest(db, ref)))
    return found


def run_id_of_folder(folder: Path) -> str | None:
    """The run that a folder's manifest names; None when it has no such manifest."""
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict):
        return None
    run = manifest.get("run")
    found = manifest.get("run_id") or (run.get("id") if isinstance(run, dict) else None)
    return found if isinstance(found, str) else None


def _steps_back(ref: str) -> tuple[str, int]:
    name, tilde, steps = ref.rpartition("~")
    if tilde and steps.isdecimal() and len(steps) < 8:
        return name, int(steps)
    return ref, 0


def _by_prefix(db: Database, ref: str) -> str | None:
    if len(ref) < _SHORTEST_PREFIX:
        return None
    rows = db.read(queries.RUN_IDS_FROM, {"low": ref, "high": ref + "\U0010ffff"})
    if len(rows) > 1:
        ids = ", ".join(str(row[0]) for row in rows[:5])
        raise UsageError(
            f"'{ref}' matches several runs: {ids}{' …' if len(rows) > 5 else ''}; use more of the id"
        )
    return str(rows[0][0]) if rows else None


def _by_folder(db: Database, folder: Path) -> str | None:
    try:
        path = str(folder.resolve())
        named = run_id_of_folder(folder) if folder.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None
    if named and (found := _one(db, "SELECT id FROM runs WHERE id = :run", run=column(named))):
        return found
    return _one(db, queries.NEWEST_IN_FOLDER, folder=column(path)) or _one(
        db, queries.NEWEST_IN_FOLDER, folder=str(folder)
    )


def _one(db: Database, sql: str, **params: Any) -> str | None:
    rows = db.read(sql, params)
    return str(rows[0][0]) if rows else None


def _nearest(db: Database, ref: str) -> str:
    from difflib import get_close_matches

    names = {str(text) for row in db.read(queries.RECENT_NAMES) for text in row}
    near = get_close_matches(ref, sorted(names), 3, 0.5)
    return f"did you mean {' or '.join(repr(each) for each in near)}?" if near else "see 'proctor ls'"


def _nothing(db: Database, ref: str, hint: str) -> str:
    return f"no run named '{ref}' in {db.where}; {hint}"
