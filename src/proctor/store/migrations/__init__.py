"""Bring a store to the newest schema. Imports Alembic, so it is called only when there is something to do."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Apply every migration that the database behind a connection lacks; one transaction for all."""
    command.upgrade(config(connection), revision)


def upgrade_sqlite(path: str, revision: str = "head") -> None:
    """The same for a SQLite file. Foreign keys are off meanwhile: tables are rebuilt to change them."""
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                upgrade(connection, revision)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
    finally:
        engine.dispose()


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings
