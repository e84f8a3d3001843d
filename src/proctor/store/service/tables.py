"""The tables of a server. They are part of the one schema: see `store/tables.py`."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from proctor.store.tables import BigId, Real, metadata


def _of_project() -> Column[str]:
    return Column("project", Text, ForeignKey("projects.id", ondelete="CASCADE"), nullable=False)


users = Table(
    "users",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Real, nullable=False),
    Column("disabled", Integer, nullable=False, server_default=text("0")),
    sqlite_strict=True,
)

projects = Table(
    "projects",
    metadata,
    Column("id", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("created_at", Real, nullable=False),
    Column("max_runs", Integer),
    Column("day_usd", Real),
    Column("keep_days", Integer),
    sqlite_strict=True,
)

members = Table(
    "members",
    metadata,
    _of_project(),
    Column("user_id", Text, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("project", "user_id"),
    sqlite_strict=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user_id", Text, ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("project", Text, ForeignKey("projects.id", ondelete="CASCADE")),
    Column("scopes", Text, nullable=False),
    Column("created_at", Real, nullable=False),
    Column("expires_at", Real),
    Column("revoked_at", Real),
    Column("used_at", Real),
    UniqueConstraint("hash", name="one_token_per_hash"),
    sqlite_strict=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("token_id", Text, ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Real, nullable=False),
    Column("expires_at", Real, nullable=False),
    sqlite_strict=True,
)

provider_keys = Table(
    "provider_keys",
    metadata,
    _of_project(),
    Column("name", Text, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("hint", Text, nullable=False),
    Column("updated_at", Real, nullable=False),
    Column("updated_by", Text, nullable=False),
    PrimaryKeyConstraint("project", "name"),
    sqlite_strict=True,
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("at", Real, nullable=False),
    Column("actor", Text, nullable=False),
    Column("token_id", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("audit_of_project", "project", "id"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)

answers = Table(
    "answers",
    metadata,
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("at", Real, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("owner", "key"),
    Index("answers_by_age", "at"),
    sqlite_strict=True,
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", Text, primary_key=True),
    _of_project(),
    Column("owner", Text, nullable=False),
    Column("created_at", Real, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("size_bytes", BigId, nullable=False),
    Column("blob", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("findings", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("num_runs", Integer, nullable=False),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="SET NULL")),
    Column("check_id", Text, ForeignKey("runs.id", ondelete="SET NULL")),
    Index("uploads_of_project", "project", "created_at", "id"),
    Index("uploads_by_digest", "project", "digest"),
    Index("uploads_by_run", "run_id"),
    sqlite_strict=True,
)

run_service = Table(
    "run_service",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    _of_project(),
    Column("owner", Text, nullable=False),
    Column("wanted", Integer, nullable=False),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("queued_at", Real, nullable=False),
    Column("parallel", Integer),
    Column("failure", Text, nullable=False, server_default=text("''")),
    Column("source", Text, nullable=False, server_default=text("''")),
    Index("run_service_of_project", "project", "run_id"),
    Index(
        "run_service_wanted",
        "queued_at",
        sqlite_where=text("wanted = 1"),
        postgresql_where=text("wanted = 1"),
    ),
    sqlite_strict=True,
)

schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    _of_project(),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Real, nullable=False),
    Column("cron", Text, nullable=False),
    Column("zone", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("next_at", Real),
    Column("last_at", Real),
    Column("last_run", Text),
    Column("last_error", Text, nullable=False, server_default=text("''")),
    Column("missed", Integer, nullable=False, server_default=text("0")),
    Index("schedules_by_time", "enabled", "next_at"),
    sqlite_strict=True,
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    _of_project(),
    Column("owner", Text, nullable=False),
    Column("created_at", Real, nullable=False),
    Column("kind", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("enabled", Integer, nullable=False),
    Column("after", BigId, nullable=False, server_default=text("0")),
    Column("last_at", Real),
    Column("last_status", Text, nullable=False, server_default=text("''")),
    sqlite_strict=True,
)

trial_labels = Table(
    "trial_labels",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("at", Real, nullable=False),
    PrimaryKeyConstraint("run_id", "idx", "label"),
    sqlite_strict=True,
)

trial_comments = Table(
    "trial_comments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("author", Text, nullable=False),
    Column("at", Real, nullable=False),
    Column("body", Text, nullable=False),
    Index("trial_comments_of_trial", "run_id", "idx", "at"),
    sqlite_strict=True,
)
