"""How long each call of a model waited and worked, how often it was tried, and how it was answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0008"
down_revision: str | None = "0007"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")


def upgrade() -> None:
    """Add the columns; of calls that are there already nobody knows."""
    for name in ("waited_s", "first_token_s", "worked_s"):
        op.add_column("model_calls", sa.Column(name, Real))
    for name in ("retries", "status"):
        op.add_column("model_calls", sa.Column(name, sa.Integer))
