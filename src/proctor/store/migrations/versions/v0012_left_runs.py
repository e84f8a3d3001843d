"""The runs of which a worker takes no trials, each with the reason: whoever waits for one is told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision: str | None = "0011"


def upgrade() -> None:
    """Workers of before have not said any."""
    op.add_column("workers", sa.Column("left_runs", sa.Text, nullable=False, server_default=sa.text("'{}'")))
