"""Rows that are added, or replace what was there, whichever database it is."""

from typing import Any

from sqlalchemy import Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import ClauseElement

from lettaspace.space.statement import Statement


def upsert(table: Table, *replaced: str) -> Statement:
    """An insert of all columns, which in a row of the same key replaces these."""
    values: dict[str, Any] = {name: bindparam(name) for name in table.c.keys()}  # noqa: SIM118
    keys = [column.name for column in table.primary_key]

    def build(dialect: type[sqlite.Insert] | type[postgresql.Insert]) -> ClauseElement:
        statement = dialect(table).values(values)
        return statement.on_conflict_do_update(
            index_elements=keys,
            set_={name: getattr(statement.excluded, name) for name in replaced},
        )

    return Statement(lambda: build(sqlite.Insert), postgresql=lambda: build(postgresql.Insert))
