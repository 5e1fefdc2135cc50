"""Alembic's entry: runs in the connection and transaction of whoever opens the store."""

from alembic import context

from lettaspace.space import schema

context.configure(
    connection=context.config.attributes["connection"], target_metadata=schema.metadata
)
with context.begin_transaction():
    context.run_migrations()
