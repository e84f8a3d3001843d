"""Whose memory a worker uses: several on one host share it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision: str | None = "0010"


def upgrade() -> None:
    """Workers that are there already share with nobody, until they are started again."""
    op.add_column("workers", sa.Column("place", sa.Text, nullable=False, server_default=sa.text("''")))
    op.create_index("workers_by_place", "workers", ["place"])
