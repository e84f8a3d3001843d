"""Keys of providers, encrypted by whoever calls: the store sees no plain value."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.store.again import repeatable
from proctor.store.database import Database
from proctor.store.rows import column

_PUT = """
INSERT INTO provider_keys (project, name, value, hint, updated_at, updated_by)
VALUES (:project, :name, :value, :hint, {now}, :by)
ON CONFLICT (project, name) DO UPDATE SET value = excluded.value, hint = excluded.hint,
  updated_at = excluded.updated_at, updated_by = excluded.updated_by
"""
_LIST = """
SELECT project, name, hint, updated_at, updated_by FROM provider_keys
WHERE project = :project AND name NOT LIKE '%:%' ORDER BY name
"""
_FORGET = "DELETE FROM provider_keys WHERE project = :project AND name >= :begin AND name < :end"
_RUN = ":"
"""Between a run and the name of a key that it alone may use."""
_VALUES = "SELECT name, value FROM provider_keys WHERE project = :project ORDER BY name"
_DELETE = "DELETE FROM provider_keys WHERE project = :project AND name = :name"


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key as it may be shown."""

    project: str
    name: str
    hint: str
    updated_at: float
    updated_by: str


@repeatable
class Keys:
    """The keys of projects."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, project: str, name: str, value: bytes, *, hint: str, by: str) -> None:
        """Write or replace a key; `value` is encrypted."""
        with self._db.write() as tx:
            tx.change(
                _PUT, {"project": project, "name": name, "value": value, "hint": hint, "by": column(by)}
            )

    def listed(self, project: str) -> list[KeyInfo]:
        """The keys of a project, without their values."""
        return [KeyInfo(*row) for row in self._db.read(_LIST, {"project": project})]

    def values(self, project: str, run_id: str = "") -> dict[str, bytes]:
        """The encrypted values, by name; those of a run, where it has some, go before the project's."""
        own: dict[str, bytes] = {}
        found: dict[str, bytes] = {}
        for name, value in self._db.read(_VALUES, {"project": project}):
            run, colon, variable = name.rpartition(_RUN)
            if not colon:
                found[name] = bytes(value)
            elif run == run_id:
                own[variable] = bytes(value)
        return found | own

    def put_for_run(self, project: str, run_id: str, name: str, value: bytes, *, by: str) -> None:
        """A key that one run alone may use, until it is over."""
        self.put(project, f"{run_id}{_RUN}{name}", value, hint="", by=by)

    def forget_run(self, project: str, run_id: str) -> None:
        """The run is over."""
        with self._db.write() as tx:
            tx.change(_FORGET, {"project": project, "begin": f"{run_id}{_RUN}", "end": f"{run_id};"})

    def delete(self, project: str, name: str) -> bool:
        """Forget a key; False when there is none."""
        with self._db.write() as tx:
            return bool(tx.change(_DELETE, {"project": project, "name": name}))
