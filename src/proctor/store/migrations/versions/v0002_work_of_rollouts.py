"""How long agent and verifier of a rollout worked, as a column: what else took time is not its duration."""

from __future__ import annotations

import json
import zlib
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision: str | None = "0001"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
_PAGE = 500
_READ = sa.text(
    "SELECT a.run_id, a.idx, a.number, a.record FROM attempts a JOIN trials t "
    "ON t.run_id = a.run_id AND t.idx = a.idx "
    "WHERE t.kind = 'task' AND (a.run_id, a.idx, a.number) > (:run, :idx, :number) "
    "ORDER BY a.run_id, a.idx, a.number LIMIT :limit"
)
_WRITE = sa.text(
    "UPDATE attempts SET work_s = :work_s WHERE run_id = :run AND idx = :idx AND number = :number"
)


def upgrade() -> None:
    """Add the column, and fill it for the rollouts that are there."""
    op.add_column("attempts", sa.Column("work_s", Real))
    connection = op.get_bind()
    place: tuple[str, int, int] = ("", -1, 0)
    while True:
        params = {"run": place[0], "idx": place[1], "number": place[2], "limit": _PAGE}
        page = connection.execute(_READ, params).all()
        if not page:
            return
        found = [
            {"run": run, "idx": idx, "number": number, "work_s": worked}
            for run, idx, number, record in page
            if (worked := _work_s(bytes(record))) is not None
        ]
        if found:
            connection.execute(_WRITE, found)
        place = (page[-1][0], page[-1][1], page[-1][2])


def _work_s(record: bytes) -> float | None:
    try:
        body: dict[str, Any] = json.loads(record if record[:1] == b"{" else zlib.decompress(record))
    except (ValueError, zlib.error):
        return None  # damaged before; `proctor doctor` says so
    phases = body.get("phases_s") or {}
    found = [phases[name] for name in ("agent", "verify") if isinstance(phases.get(name), int | float)]
    return float(sum(found)) if found else None
