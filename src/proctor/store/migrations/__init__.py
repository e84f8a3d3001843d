"""Upgrade a store to the newest schema. Imports Alembic, so it is called only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from proctor.errors import StoreError


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Apply every migration that the database behind a connection lacks; one transaction for all."""
    command.upgrade(config(connection), revision)


@contextmanager
def transaction_on(connect: Callable[[], Any]) -> Iterator[Connection]:
    """A transaction on a connection of PostgreSQL's driver; errors are the driver's too."""
    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise (error.orig or error) from error


def upgrade_sqlite(path: str, revision: str = "head") -> None:
    """The same for a SQLite file. Foreign keys are off meanwhile: tables are rebuilt to change them."""
    url = URL.create("sqlite", database=path)
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args={"timeout": 30})
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                upgrade(connection, revision)
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
    except SQLAlchemyError as error:
        raise StoreError(
            f"{path}: the store could not be upgraded to the newest schema and is unchanged: {error}"
        ) from error
    finally:
        engine.dispose()


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings
