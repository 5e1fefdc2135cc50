"""Statements of the paths that every write goes through, compiled once.

SQLAlchemy builds and looks up a statement anew at each call, which costs more than SQLite
takes to run it. A `Statement` is built from the same table objects, compiled at its first
use for a database's dialect, and from then on goes straight to the driver, inside the
transaction of the connection it is given.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import Connection, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

Row = tuple[Any, ...]


class Statement:
    """One statement with named parameters (`bindparam`; for an insert, its columns).

    What is particular to a database is built by `**others`, by the dialect's name. Values pass
    to the driver as they are, so only plain types may be bound or read: text, integers, bytes,
    None.
    """

    def __init__(
        self, build: Callable[[], ClauseElement], **others: Callable[[], ClauseElement]
    ) -> None:
        self._build = build
        self._others = others
        self._compiled: dict[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {}

    def all(self, connection: Connection, /, **values: Any) -> list[Row]:
        return self._run(connection, values).fetchall()  # type: ignore[no-any-return]

    def each(self, connection: Connection, /, **values: Any) -> Iterator[Row]:
        """Like `all`, a row at a time; PostgreSQL's driver has all of them in memory."""
        return iter(self._run(connection, values))

    def one(self, connection: Connection, /, **values: Any) -> Row | None:
        return self._run(connection, values).fetchone()  # type: ignore[no-any-return]

    def only(self, connection: Connection, /, **values: Any) -> Row:
        """The row of a statement that always gives one."""
        row = self.one(connection, **values)
        if row is None:
            raise LookupError("a row that must be there is not")
        return row

    def run(self, connection: Connection, /, **values: Any) -> None:
        self._run(connection, values)

    def many(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> int:
        """Runs it once for each of the rows, which may be a stream; not at all for none.
        Returns how many rows of the table that changed."""
        stream = iter(rows)
        for first in stream:
            sql, order = self._for(connection)
            values: Any = map(order, chain((first,), stream))
            cursor = _cursor(connection)
            cursor.executemany(sql, values)
            return int(cursor.rowcount)
        return 0

    def _run(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        sql, order = self._for(connection)
        cursor = _cursor(connection)
        cursor.execute(sql, order(values))
        return cursor

    def _for(self, connection: Connection) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:
        dialect = connection.dialect
        found = self._compiled.get(dialect.name)
        if found is None:
            build = self._others.get(dialect.name, self._build)
            compiled = cast(SQLCompiler, build().compile(dialect=dialect))
            names = compiled.positiontup
            # What the statement itself binds, literals for instance. Everything else must be
            # given: a forgotten name is a KeyError, not a NULL.
            fixed = {name: value for name, value in compiled.params.items() if value is not None}
            found = self._compiled[dialect.name] = (str(compiled), _order(names, fixed))
        return found


def insert_new(table: Table, *columns: str) -> Statement:
    """An insert of these columns, or of all, that passes over a row that is there already."""
    values: dict[str, Any] = {name: bindparam(name) for name in columns or table.columns.keys()}
    return Statement(
        lambda: sqlite.insert(table).values(values).on_conflict_do_nothing(),
        postgresql=lambda: postgresql.insert(table).values(values).on_conflict_do_nothing(),
    )


def replacing(table: Table) -> Statement:
    """An insert of all columns, in SQLite, that takes the place of a row with the same key."""
    names, key = table.columns.keys(), table.primary_key.columns.keys()
    row = sqlite.insert(table).values({name: bindparam(name) for name in names})
    others = {name: row.excluded[name] for name in names if name not in key}
    return Statement(lambda: row.on_conflict_do_update(index_elements=key, set_=others))


def _order(names: Sequence[str] | None, fixed: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Makes what a driver takes of named values: those in order, or a dict with all of them."""
    if names is None:
        return lambda values: {**fixed, **values}
    if fixed or len(names) < 2:
        return lambda values: [values[n] if n in values else fixed[n] for n in names]
    return itemgetter(*names)


def _cursor(connection: Connection) -> Any:
    """The driver's own cursor, without SQLAlchemy's around it."""
    return cast(Any, connection.connection.dbapi_connection).cursor()
