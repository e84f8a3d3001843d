"""What a server keeps: people, projects, tokens, uploads, the queue, schedules, webhooks and notes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0007"
down_revision: str | None = "0006"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
BigId: TypeEngine[int] = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def upgrade() -> None:
    """Add the tables, and the project to which runs without a server belong."""
    _people()
    _work()
    _around()
    op.execute("INSERT INTO projects (id, title, created_at) VALUES ('default', 'Default', 0)")


def _people() -> None:
    """Who may do what."""
    op.create_table(
        "users",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("disabled", sa.Integer, nullable=False, server_default=sa.text("0")),
        sqlite_strict=True,
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("max_runs", sa.Integer),
        sa.Column("day_usd", Real),
        sa.Column("keep_days", sa.Integer),
        sqlite_strict=True,
    )
    op.create_table(
        "members",
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.PrimaryKeyConstraint("project", "user_id"),
        sqlite_strict=True,
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE")),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("expires_at", Real),
        sa.Column("revoked_at", Real),
        sa.Column("used_at", Real),
        sa.UniqueConstraint("hash", name="one_token_per_hash"),
        sqlite_strict=True,
    )
    op.create_table(
        "sessions",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, sa.ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("expires_at", Real, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "provider_keys",
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("updated_at", Real, nullable=False),
        sa.Column("updated_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("project", "name"),
        sqlite_strict=True,
    )
    op.create_table(
        "audit",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        sa.Column("at", Real, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
    op.create_index("audit_of_project", "audit", ["project", "id"])


def _work() -> None:
    """What is to be done."""
    op.create_table(
        "answers",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("at", Real, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("owner", "key"),
        sqlite_strict=True,
    )
    op.create_index("answers_by_age", "answers", ["at"])
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("size_bytes", BigId, nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("findings", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("num_runs", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="SET NULL")),
        sa.Column("check_id", sa.Text, sa.ForeignKey("runs.id", ondelete="SET NULL")),
        sqlite_strict=True,
    )
    op.create_index("uploads_by_digest", "uploads", ["project", "digest"])
    op.create_index("uploads_by_run", "uploads", ["run_id"])
    op.create_index("uploads_of_project", "uploads", ["project", "created_at", "id"])
    op.create_table(
        "run_service",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("wanted", sa.Integer, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("queued_at", Real, nullable=False),
        sa.Column("parallel", sa.Integer),
        sa.Column("failure", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("source", sa.Text, nullable=False, server_default=sa.text("''")),
        sqlite_strict=True,
    )
    op.create_index("run_service_of_project", "run_service", ["project", "run_id"])
    op.create_index(
        "run_service_wanted",
        "run_service",
        ["queued_at"],
        sqlite_where=sa.text("wanted = 1"),
        postgresql_where=sa.text("wanted = 1"),
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("zone", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("enabled", sa.Integer, nullable=False),
        sa.Column("next_at", Real),
        sa.Column("last_at", Real),
        sa.Column("last_run", sa.Text),
        sa.Column("last_error", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("missed", sa.Integer, nullable=False, server_default=sa.text("0")),
        sqlite_strict=True,
    )
    op.create_index("schedules_by_time", "schedules", ["enabled", "next_at"])


def _around() -> None:
    """What tells others, and notes."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("enabled", sa.Integer, nullable=False),
        sa.Column("after", BigId, nullable=False, server_default=sa.text("0")),
        sa.Column("last_at", Real),
        sa.Column("last_status", sa.Text, nullable=False, server_default=sa.text("''")),
        sqlite_strict=True,
    )
    op.create_table(
        "trial_labels",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("at", Real, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "idx", "label"),
        sqlite_strict=True,
    )
    op.create_table(
        "trial_comments",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("at", Real, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_strict=True,
    )
    op.create_index("trial_comments_of_trial", "trial_comments", ["run_id", "idx", "at"])
