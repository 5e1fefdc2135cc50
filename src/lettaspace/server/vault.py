"""Secrets of the host itself: each made at random once, for all processes and for good."""

import secrets

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from lettaspace.server import tables
from lettaspace.space.database import Database


def secret(database: Database, name: str) -> bytes:
    """The secret of this name: 32 bytes."""
    query = select(tables.secrets.c.value).where(tables.secrets.c.name == name)
    with database.read() as connection:
        found = connection.execute(query).scalar()
    if found is None:
        with database.write() as connection:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            connection.execute(
                dialect.insert(tables.secrets)
                .values(name=name, value=secrets.token_bytes(32))
                .on_conflict_do_nothing()
            )
            found = connection.execute(query).scalar_one()
    return bytes(found)
