"""Alembic's entry: runs in the connection and transaction of whoever opens the host."""

from alembic import context

from lettaspace.server import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    version_table=tables.VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
