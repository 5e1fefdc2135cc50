"""What conversations used: tokens and cost, each provider response counted once.

One response may stand in several messages: split over rows, or copied into forks. It is known
by its provider and response id; one that has no id by when it was and what it said. Messages
of one response that differ in usage are read as stages of it, and the largest counts.

Tokens are whole numbers. Costs are summed exactly, as decimals of the text they were stored
with, in US dollars. A cost that is absent, or no sensible number, is unknown: such responses
are counted (`unpriced`), their tokens too.

Source: `usage` of LocalMessage; what counting too often looks like: ccusage's issues.
"""

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, select

from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.responses import Reader, Response, Unreadable
from lettaspace.conversation.totals import Row as Row
from lettaspace.conversation.totals import Totals as Totals
from lettaspace.conversation.totals import UsageReport as UsageReport
from lettaspace.conversation.totals import add_up
from lettaspace.space import schema
from lettaspace.space.view import View

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

_IN = 500
"""Values in one statement."""

_REPORTS = 64
"""Reports that a counter keeps."""


def count_usage(
    view: View, *, conversation: str | None = None, agent: str | None = None
) -> UsageReport:
    """What was used in a conversation, by an agent (their URIs), or in all of a repo."""
    read = Reader(view.get_blob).read
    query = _messages.where(_records.repo == view.repo)
    if conversation is not None:
        query = (
            query.join(schema.message_index, _index.record == _records.id)
            .join(schema.message_conversations, _names.id == _index.conversation)
            .where(_names.uri == conversation)
        )
    found = ((rkey, read(value)) for rkey, value in _stream(view.connection, query))
    return add_up(found, None, agent)


class UsageCounter:
    """Counts again and again, and reads only what changed in between.

    The same numbers as `Space.usage`, but for a message that was read and cannot be any more:
    what it said is still known. For any number of threads; keep one for as long as the space
    is open. It takes some 330 bytes a response.
    """

    def __init__(self, space: "Space") -> None:
        self._space = space
        self._lock = Lock()
        self._reader = Reader(space.repo.get_blob)
        self._known: _Known | None = None
        self._reports: dict[tuple[str | None, str | None], UsageReport] = {}

    def report(self, conversation: str | None = None, agent: str | None = None) -> UsageReport:
        """What was used in a conversation (its URI), by an agent (its URI or key), or in all.

        Reports are shared among callers, who may not change them.
        """
        if agent is not None and not agent.startswith("at://"):
            agent = self._space.address.agent(agent)
        scope = conversation, agent
        # The snapshot is taken under the lock, so that none is older than what is known.
        with self._lock, self._space.database.read() as connection:
            if self._refresh(connection) or len(self._reports) >= _REPORTS:
                self._reports.clear()
            if scope not in self._reports:
                said = {} if self._known is None else self._known.said
                self._reports[scope] = add_up(said.items(), conversation, agent)
            return self._reports[scope]

    def _refresh(self, connection: Connection) -> bool:
        """Whether anything changed."""
        repo = self._space.repo.id
        rev = connection.execute(select(_repos.rev).where(_repos.id == repo)).scalar()
        # Put back when it is whole: what breaks off here is read afresh the next time.
        known, self._known = self._known, None
        if known is None or not _continues(connection, repo, known.rev, rev):
            known = _Known(repo)
            known.read_all(connection, self._reader)
            changed = True
        else:
            # What could not be read may be readable now: a blob may have come.
            again = set(known.unreadable)
            if rev != known.rev:
                again.update(_written(connection, repo, known.rev))
            changed = known.read_again(connection, self._reader, again)
        known.rev = rev
        self._known = known
        return changed


class _Known:
    """What the messages of one repo say, by record key, as of a revision."""

    def __init__(self, repo: int) -> None:
        self.repo = repo
        self.rev: str | None = None
        self.said: dict[str, Response | Unreadable] = {}
        self.unreadable: set[str] = set()

    def read_all(self, connection: Connection, reader: Reader) -> None:
        self._read(connection, reader, _messages.where(_records.repo == self.repo))

    def read_again(self, connection: Connection, reader: Reader, rkeys: Iterable[str]) -> bool:
        """Whether any of these messages, or what became of them, says anything new."""
        changed = False
        wanted = sorted(rkeys)
        for start in range(0, len(wanted), _IN):
            some = wanted[start : start + _IN]
            before = {rkey: self.said.pop(rkey, None) for rkey in some}
            self.unreadable.difference_update(some)
            query = _messages.where(_records.repo == self.repo, _records.rkey.in_(some))
            self._read(connection, reader, query)
            changed |= any(self.said.get(rkey) != said for rkey, said in before.items())
        return changed

    def _read(self, connection: Connection, reader: Reader, query: Select[Any]) -> None:
        for rkey, value in _stream(connection, query):
            found = reader.read(value)
            if found is None:
                continue
            if isinstance(found, Unreadable):
                self.unreadable.add(rkey)
                if found.conversation is None:
                    found = Unreadable(_conversation(connection, self.repo, rkey), None)
            self.said[rkey] = found


_records = schema.records.c
_repos = schema.repos.c
_ops = schema.ops.c
_index = schema.message_index.c
_names = schema.message_conversations.c

_messages = select(_records.rkey, _records.value).where(_records.collection == MESSAGE)


def _stream(connection: Connection, query: Select[Any]) -> Iterator[tuple[str, bytes]]:
    return ((rkey, value) for rkey, value in connection.execute(query))


def _continues(connection: Connection, repo: int, since: str | None, rev: str | None) -> bool:
    """Whether the log tells all that was written since a revision."""
    if since == rev:
        return True
    if since is None or rev is None or rev < since:
        return False
    query = select(_ops.rev).where(_ops.repo == repo, _ops.rev == since).limit(1)
    return connection.execute(query).first() is not None


def _written(connection: Connection, repo: int, since: str | None) -> Iterator[str]:
    """The keys of the messages that were written or deleted since a revision."""
    query = select(_ops.rkey).where(_ops.repo == repo, _ops.rev > since, _ops.collection == MESSAGE)
    return iter(connection.execute(query).scalars())


def _conversation(connection: Connection, repo: int, rkey: str) -> str | None:
    """The conversation of a message, if it is not to be had of the message itself."""
    record = select(_records.id).where(
        _records.repo == repo, _records.collection == MESSAGE, _records.rkey == rkey
    )
    query = (
        select(_names.uri)
        .join(schema.message_index, _names.id == _index.conversation)
        .where(_index.record == record.scalar_subquery())
    )
    return connection.execute(query).scalar()
