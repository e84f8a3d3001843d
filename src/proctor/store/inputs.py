"""What a run is made from, as blobs: tasks, sources of experiments, overrides. Workers need nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.store.database import Database, Transaction
from proctor.store.rows import column

_SOME = 100
"""How many names one query asks for."""
_INSERT = """
INSERT INTO run_inputs (run_id, name, digest, size_bytes, place)
VALUES (:run, :name, :digest, :size_bytes, :place)
"""
_LATEST = """
SELECT i.digest FROM run_inputs i JOIN runs r ON r.id = i.run_id WHERE i.name = :name
ORDER BY r.created_at DESC LIMIT :limit
"""
_OF_RUN = "SELECT name, digest, size_bytes, place FROM run_inputs WHERE run_id = :run ORDER BY name"
_KNOWN = """
SELECT * FROM (SELECT name, digest, size_bytes, place FROM run_inputs WHERE name = :n{at} LIMIT 1) AS i{at}
"""
"""Of one name: thousands of runs may have it, and all mean the same."""


@dataclass(frozen=True, slots=True)
class Input:
    """One thing that a run is made from: a folder, packed, under a name."""

    name: str
    """What it is: `task/<digest>`, `source/<number>`, `overrides/<entry>`, `agent/<entry>/<name>`, `mark`."""
    digest: str
    """Of the blob."""
    size_bytes: int
    place: str = ""
    """What of the folder is meant: a file of it, a module; empty for all of it."""


class Inputs:
    """The inputs of runs."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, run_id: str) -> dict[str, Input]:
        """All inputs of a run, by name; none when an earlier version created it."""
        return {row[0]: Input(*row) for row in self._db.read(_OF_RUN, {"run": run_id})}

    def latest(self, name: str, limit: int) -> list[str]:
        """The digests of what the latest runs have under a name."""
        return [row[0] for row in self._db.read(_LATEST, {"name": name, "limit": limit})]

    def known(self, names: Iterable[str]) -> Mapping[str, Input]:
        """Those of these names that some run has already. For names that say what is in the blob."""
        wanted = list(dict.fromkeys(names))
        found: dict[str, Input] = {}
        for at in range(0, len(wanted), _SOME):
            some = wanted[at : at + _SOME]
            sql = " UNION ALL ".join(_KNOWN.format(at=nth) for nth in range(len(some)))
            params = {f"n{nth}": name for nth, name in enumerate(some)}
            found |= {row[0]: Input(*row) for row in self._db.read(sql, params)}
        return found

    @staticmethod
    def add(tx: Transaction, run_id: str, inputs: Sequence[Input]) -> None:
        """Write the inputs of a run."""
        rows = [
            {
                "run": run_id,
                "name": each.name,
                "digest": each.digest,
                "size_bytes": each.size_bytes,
                "place": column(each.place),
            }
            for each in inputs
        ]
        if rows:
            tx.many(_INSERT, rows)
