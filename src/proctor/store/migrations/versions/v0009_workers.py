"""Who works: a row for every worker; and what else a trial needs of one, processors and labels."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0009"
down_revision: str | None = "0008"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")


def upgrade() -> None:
    """Trials that are there already need nothing more, and workers come by themselves."""
    op.add_column("trials", sa.Column("cpus", Real, nullable=False, server_default=sa.text("0")))
    op.add_column("trials", sa.Column("labels", sa.Text, nullable=False, server_default=sa.text("''")))
    op.create_table(
        "workers",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("parallel", sa.Integer, nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("cpus", Real, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("backends", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("draining", sa.Integer, nullable=False),
        sa.Column("since", Real, nullable=False),
        sa.Column("seen_at", Real, nullable=False),
        sqlite_strict=True,
    )
    op.create_index("workers_by_sight", "workers", ["seen_at"])
