"""What Alembic runs: the migrations, on the connection that the caller opened."""

from __future__ import annotations

from alembic import context

from proctor.store.database import VERSION_TABLE
from proctor.store.service import tables as _service  # noqa: F401 - adds its tables to the metadata
from proctor.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
