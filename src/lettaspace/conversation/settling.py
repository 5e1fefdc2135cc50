"""Settling: a tool call that never got its result gets an error result.

Providers refuse a call without a result, and nobody knows any more whether the tool ran.
The placeholder says just that. If the real result turns up after all, it takes the
placeholder's place.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, select

from lettaspace.conversation import formats, reading
from lettaspace.conversation.formats import Call, names
from lettaspace.conversation.index import conversation_id
from lettaspace.conversation.message import Message
from lettaspace.conversation.ordering import UNPLACED, Place, rising, window_places
from lettaspace.conversation.pairing import Ledger, answers, calls, unanswered
from lettaspace.conversation.records import MESSAGE, new_message
from lettaspace.conversation.search import blob_reader
from lettaspace.conversation.writing import Payload, encode, fresh_rkey, message_value, updated
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.space import schema
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.statement import Statement
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Update, Value, Write

_index = schema.message_index.c

INTERRUPTED = (
    "This tool call has no result: the run ended before one was recorded. "
    "Whether the tool did its work is unknown."
)


class Settle:
    """A plan that settles calls of a window: all that have no result, or those named.

    Where more must be written than fits one batch, it writes a part, and is to be run again
    until `done`. What stands last is written first, so each part leaves a right window.
    """

    def __init__(
        self,
        repo: EmbeddedRepo,
        conversation: str,
        agent: str,
        *,
        call_ids: Collection[str] | None,
        text: str,
        at: str,
    ) -> None:
        self.rkeys: list[str] = []
        self.done = False
        self._repo = repo
        self._conversation = conversation
        self._agent = agent
        self._call_ids = call_ids
        self._text = text
        self._at = at

    def __call__(self, view: View) -> Sequence[Write]:
        connection = view.connection
        messages = reading.active(connection, self._conversation, blob_reader(connection))
        number = conversation_id(connection, self._conversation)
        places = window_places(connection, number)
        results: dict[str, tuple[Message, Call]] = {}
        for message, call in self._chosen(messages):
            rkey = fresh_rkey(view, self._repo.clock)
            results[rkey] = (message, call)
            places.insert(_behind(messages, places, message, call), Place(rkey, UNPLACED))
        moves = rising(connection, number, places) if results else []
        created: dict[str, int] = {}
        # A new seq, or None: a calling message is rewritten with its result, where it stands
        # or where it goes.
        updated: dict[str, int | None] = {}
        for rkey, seq in moves:
            touched = results[rkey][0].rkey if rkey in results else rkey
            if len(created) + (rkey in results) + len(updated.keys() | {touched}) > MAX_WRITES:
                break
            if rkey in results:
                created[rkey] = seq
                updated.setdefault(touched, None)
            else:
                updated[rkey] = seq
        else:
            self.done = True
        self.rkeys += created
        return [
            *(self._create(rkey, *results[rkey], seq) for rkey, seq in created.items()),
            *(self._update(view, rkey, seq) for rkey, seq in updated.items()),
        ]

    def _chosen(self, messages: Sequence[Message]) -> list[tuple[Message, Call]]:
        without = unanswered(messages)
        if self._call_ids is None:
            return without
        known = {call.id for message in messages for call in calls(message)}
        for call_id in self._call_ids:
            if call_id not in known:
                raise NotFound(f"no tool call {call_id!r} in the window")
        return [each for each in without if each[1].id in self._call_ids]

    def _placeholder(self, message: Message, call: Call) -> Payload:
        known = formats.of(message.value)
        if known is None:
            raise InvalidInput(f"format {message.format} {message.version} is not registered")
        data = known.placeholder(call, self._text, self._at)
        return encode(data, role="toolResult", name=known.name, version=known.version)

    def _create(self, rkey: str, message: Message, call: Call, seq: int) -> Create:
        payload = self._placeholder(message, call)
        value = new_message(
            self._conversation, self._agent, payload.role, seq, payload.message, self._at
        )
        return Create(MESSAGE, rkey, value)

    def _update(self, view: View, rkey: str, seq: int | None) -> Update:
        value = message_value(view, rkey)
        seqs = {} if seq is None else {"seq": seq}
        return Update(MESSAGE, rkey, updated(value, self._at, **seqs))


def _behind(
    messages: Sequence[Message], places: Sequence[Place], owner: Message, call: Call
) -> int:
    """Directly after a call's message and the results that follow it, but before those that
    settle later calls of that message: an earlier batch has written them, and left room."""
    by_rkey = {message.rkey: message for message in messages}
    ids = [each.id for each in calls(owner)]
    later = ids[ids.index(call.id) + 1 :]
    at = next(at for at, place in enumerate(places) if place.rkey == owner.rkey) + 1
    while at < len(places):
        if places[at].seq != UNPLACED:
            answered = answers(message := by_rkey[places[at].rkey])
            if answered is None or (answered in later and _is_placeholder(message.value)):
                break
        at += 1
    return at


def _is_placeholder(value: Value) -> bool:
    known = formats.of(value)
    return known is not None and known.is_placeholder(value["message"]["data"])


_settled = Statement(
    lambda: (
        select(_index.rkey)
        .where(
            _index.conversation == bindparam("id"),
            _index.settles == bindparam("call"),
            _index.settles.is_not(None),  # or SQLite would pass over the index of these alone
        )
        .order_by(_index.seq.desc())
    )
)


def placeholder_for(view: View, number: int, payload: Payload) -> str | None:
    """The rkey of the placeholder that a late tool result replaces."""
    known = formats.find(payload.message["format"], payload.message["version"])
    data = payload.message["data"]
    if known is None or payload.role != "toolResult" or known.is_placeholder(data):
        return None
    call = known.answers(data)
    if call is None:
        return None
    rows = _settled.all(view.connection, id=number, call=names(call)[-1])
    found: list[str] = [rkey for (rkey,) in rows]
    if not found:
        return None
    conversation = message_value(view, found[0])["conversation"]
    messages = reading.active(view.connection, conversation, blob_reader(view.connection))
    called = Ledger(messages).called(call)
    if called is not None and not called.results:
        return None  # the id came again, and this is the result of the new call
    # Calls may share the first half of their ids; the whole id decides, then who came last.
    return next((rkey for rkey in found if _answered(view, rkey) == call), found[0])


def _answered(view: View, rkey: str) -> str | None:
    value = message_value(view, rkey)
    known = formats.of(value)
    return known.answers(value["message"]["data"]) if known else None
