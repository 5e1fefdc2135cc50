"""Checks what the contract promises: projections, seqs, summaries, tool results.

Nothing is changed. The projections are derived anew into temporary tables of the same names,
which a database looks up before its own, and then compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, MetaData, Table, and_, func, select, text
from sqlalchemy.exc import DBAPIError

from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.index import MessageIndex
from lettaspace.conversation.pairing import ORPHAN
from lettaspace.conversation.reading import transcript
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.search import indexed
from lettaspace.errors import Damaged
from lettaspace.space import schema
from lettaspace.space.database import Database
from lettaspace.space.projection import decoded, fill
from lettaspace.space.verify import Problem, Progress

_index = schema.message_index.c
_covers = schema.message_covers.c

_REBUILT = (schema.message_conversations, schema.message_index, schema.message_covers)
_PAGE = 500


def conversation_problems(
    connection: Connection, open_blob: OpenBlob, progress: Progress
) -> Iterator[Problem]:
    """What breaks the contract in the conversations of a store."""
    rows = connection.execute(select(schema.message_conversations))
    uris: dict[int, str] = {row.id: row.uri for row in rows}
    yield from _seq_problems(connection, uris)
    yield from _summary_problems(connection, uris)
    for done, uri in enumerate(uris.values(), 1):
        try:
            for message in transcript(connection, uri, open_blob):
                if ORPHAN in message.flags:
                    yield Problem(
                        ORPHAN, message.uri, "no call of this tool result stands before it"
                    )
        except Damaged:
            pass  # the damaged record has been named already
        progress("conversations", done, len(uris))


def projection_problems(connection: Connection, progress: Progress) -> Iterator[Problem]:
    """Where the message index and the search texts are not what the records say."""
    with _temporary(connection, _REBUILT):
        # Conversations keep their numbers, so that rows can be compared.
        connection.execute(
            text("INSERT INTO temp.message_conversations SELECT * FROM main.message_conversations")
        )
        fill(connection, MessageIndex())
        for table in (schema.message_index, schema.message_covers):
            yield from _differences(connection, table)
    yield from _text_problems(connection, progress)


def trigram_problems(database: Database) -> Iterator[Problem]:
    """Where the trigram index is not what the search texts say."""
    # The check is written as an insert, so it takes a write transaction, which changes nothing.
    with database.write() as connection:
        try:
            connection.execute(
                text(
                    "INSERT INTO search_trigrams(search_trigrams, rank) "
                    "VALUES ('integrity-check', 1)"
                )
            )
        except DBAPIError:
            yield Problem("search-index", "search", "the trigram index does not match the texts")


def _seq_problems(connection: Connection, uris: dict[int, str]) -> Iterator[Problem]:
    shared = (
        select(_index.conversation, _index.seq, func.count().label("times"))
        .group_by(_index.conversation, _index.seq)
        .having(func.count() > 1)
        .order_by(_index.conversation, _index.seq)
    )
    for row in connection.execute(shared):
        where = uris[row.conversation]
        yield Problem("seq", where, f"seq {row.seq} is on {row.times} messages")


def _summary_problems(connection: Connection, uris: dict[int, str]) -> Iterator[Problem]:
    known = select(_index.rkey).where(
        _index.conversation == _covers.conversation, _index.rkey == _covers.covered
    )
    absent = select(schema.message_covers).where(~known.exists())
    for row in connection.execute(absent):
        where = f"{uris[row.conversation]}, summary {row.summary}"
        yield Problem("listed-missing", where, f"it lists {row.covered}, which is not there")
    twice = (
        select(_covers.conversation, _covers.covered, func.count().label("times"))
        .group_by(_covers.conversation, _covers.covered)
        .having(func.count() > 1)
    )
    for row in connection.execute(twice):
        where = f"{uris[row.conversation]}, message {row.covered}"
        yield Problem("listed-twice", where, f"summaries list it {row.times} times")


def _differences(connection: Connection, table: Table) -> Iterator[Problem]:
    columns = ", ".join(column.name for column in table.columns)
    name = "rkey" if "rkey" in table.c else "summary"
    for first, second, detail in (
        ("main", "temp", "the records do not give this row"),
        ("temp", "main", "a row that the records give is missing"),
    ):
        rows = connection.execute(
            text(
                f"SELECT DISTINCT {name} FROM (SELECT {columns} FROM {first}.{table.name} "  # noqa: S608
                f"EXCEPT SELECT {columns} FROM {second}.{table.name}) ORDER BY 1"
            )
        )
        for (rkey,) in rows:
            yield Problem("projection", f"{table.name} {rkey}", detail)


def _text_problems(connection: Connection, progress: Progress) -> Iterator[Problem]:
    records, texts = schema.records, schema.search_text
    is_message = and_(records.c.id == texts.c.record, records.c.collection == MESSAGE)
    stray = select(texts.c.record).outerjoin(records, is_message).where(records.c.id.is_(None))
    for record in connection.execute(stray).scalars():
        yield Problem("search-text", f"search text {record}", "it belongs to no message")
    total = connection.execute(
        select(func.count()).select_from(records).where(records.c.collection == MESSAGE)
    ).scalar_one()
    last, done = 0, 0
    while True:
        rows = connection.execute(
            select(records.c.id, records.c.rkey, records.c.value, texts.c.text, texts.c.thinking)
            .outerjoin(texts, texts.c.record == records.c.id)
            .where(records.c.collection == MESSAGE, records.c.id > last)
            .order_by(records.c.id)
            .limit(_PAGE)
        ).all()
        for row in rows:
            value = decoded(row.value)
            if value is None:
                continue  # named already
            found = indexed(connection, value)
            where = f"{MESSAGE}/{row.rkey}"
            if found is None:
                yield Problem("unreadable", where, "its text cannot be read")
            elif (found.text, found.thinking) != (row.text, row.thinking):
                yield Problem("search-text", where, "the search text is not the record's")
        done += len(rows)
        progress("search texts", done, total)
        if len(rows) < _PAGE:
            return
        last = rows[-1].id


@contextmanager
def _temporary(connection: Connection, tables: tuple[Table, ...]) -> Iterator[None]:
    """Empty tables of these names in front of the real ones."""
    try:
        for table in tables:
            copy = table.to_metadata(MetaData())
            copy._prefixes = ["TEMPORARY"]
            copy.create(connection, checkfirst=False)
        yield
    finally:
        for table in tables:
            connection.execute(text(f"DROP TABLE IF EXISTS temp.{table.name}"))
