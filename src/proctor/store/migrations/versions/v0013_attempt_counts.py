"""How many attempts there were and how long they took, beside the counts of trials: a monitor asks often."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0013"
down_revision: str | None = "0012"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
_COUNT = """
INSERT INTO run_counts (run_id, state, outcome, shard, trials, attempts, seconds)
SELECT run_id, CASE WHEN outcome = 'cancelled' THEN 'cancelled' ELSE 'done' END, outcome, 0, 0, count(*),
  sum(ended_at - started_at)
FROM attempts WHERE true GROUP BY run_id, outcome
ON CONFLICT (run_id, state, outcome, shard)
DO UPDATE SET attempts = excluded.attempts, seconds = excluded.seconds
"""


def upgrade() -> None:
    """Add the columns, and count the attempts that are there."""
    op.add_column(
        "run_counts", sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0"))
    )
    op.add_column("run_counts", sa.Column("seconds", Real, nullable=False, server_default=sa.text("0")))
    op.execute(_COUNT)
