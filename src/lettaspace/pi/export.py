"""A stored conversation as a session file of pi.

What came from a session file, and was not touched since, goes out as it was: the same entries
in the same order. Anything else is told anew: what a summary covers stands before it, and the
summary keeps nothing of what stands before it (`firstKeptEntryId` names itself), since its tail
follows. So the model is given by pi what the window has. Messages that left the window without
a summary stand on branches of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lettaspace.conversation import codec, pairing
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.conversation.overview import ConversationInfo
from lettaspace.conversation.records import CONVERSATION, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged
from lettaspace.pi.build import MARK, PI_SESSION
from lettaspace.pi.entry import entry_in, entry_of, row_of
from lettaspace.pi.session import Row, Session
from lettaspace.pi.tree import COMPACTION, EDIT, replay

LEAF = "lettaspace.leaf"
"""The `customType` of an entry that only says where the session stands."""


def session_lines(space: Space, name: str) -> Iterator[bytes]:
    """The lines of the session file of the conversation called so (see `Space.conversation`),
    each with its newline. Nothing is redacted.

    Raises NotFound, Ambiguous, or Damaged for a payload that cannot be read.
    """
    info = space.conversation_info(name)
    kept = _kept(space, info)
    messages = list(space.transcript(info.uri))
    header = kept.header if kept is not None else _header(space, info, messages)
    rows = _as_it_was(kept, messages)
    if rows is None:
        rows = _Telling(info, kept, messages).entries()
        # In the first form, entries have no ids, and pi would make a line of them.
        header = {**header, "version": max(Session(header, []).version, 3)}
    yield _line(header)
    for row in rows:
        yield _line(row)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the state of an imported session keeps."""

    header: dict[str, Any]
    entries: list[Row]


def _kept(space: Space, info: ConversationInfo) -> _Kept | None:
    state = space.repo.get(CONVERSATION_STATE, info.rkey)
    kept = state.value.get("state") if state is not None else None
    if kept is None or (kept["format"], kept["version"]) != (PI_SESSION, 1):
        return None
    data = codec.decode(kept["data"], space.repo.get_blob)
    try:
        rows = [Row(int(each["row"]), dict(each["entry"])) for each in data["entries"]]
        return _Kept(dict(data["header"]), rows)
    except (KeyError, TypeError, ValueError):
        raise Damaged(f"the state of conversation {info.rkey} is no session of pi's") from None


def _as_it_was(kept: _Kept | None, messages: Sequence[Message]) -> Iterable[dict[str, Any]] | None:
    """The entries of the file, if the conversation is what that file says; else None."""
    if kept is None:
        return None
    tids: dict[int, str] = {}
    rows = list(kept.entries)
    for message in messages:
        row, entry = row_of(message), entry_in(message)
        if row is None or entry is None or row in tids:
            return None
        tids[row] = message.rkey
        rows.append(Row(row, entry))
    rows.sort(key=lambda row: row.row)
    made = replay(Session(kept.header, rows))
    window = [tids[rows[at].row] for at in made.window]
    if window != [message.rkey for message in _in_order(messages)]:
        return None
    return (row.value for row in rows)


def _in_order(messages: Iterable[Message]) -> list[Message]:
    """The window, of a transcript: its top, in its order."""
    return [message for message in messages if message.active]


def _header(space: Space, info: ConversationInfo, messages: Sequence[Message]) -> dict[str, Any]:
    """The header of a session that pi did not begin."""
    header: dict[str, Any] = {
        "type": "session",
        "version": 3,
        "id": info.rkey,
        "timestamp": info.created_at,
    }
    if info.cwd:
        header["cwd"] = info.cwd
    record = space.repo.get(CONVERSATION, info.rkey)
    window = _in_order(messages)
    if record is not None and window:
        last = window[-1]
        header[MARK] = {
            "forkedFrom": {
                "conversation": {"uri": info.uri, "cid": str(record.cid)},
                "message": {"uri": space.address.uri(MESSAGE, last.rkey), "cid": str(last.cid)},
            }
        }
    return header


class _Telling:
    """A conversation told anew, entry by entry."""

    def __init__(self, info: ConversationInfo, kept: _Kept | None, messages: Sequence[Message]):
        self.info = info
        self.kept = kept
        self.messages = messages
        self.over = {message.rkey: message.covered_by for message in messages}
        self.first = next((each.rkey for each in _in_order(messages) if not each.flags), None)
        self.tip: str | None = None
        """The entry that the next one follows."""
        self.side: str | None = None
        """The end of a branch beside it, while there is one."""
        self.given: list[str] = []
        """The messages that pi would give the model by now."""
        self.ids: set[str] = set()

    def entries(self) -> Iterator[dict[str, Any]]:
        rest = self.beside()
        for message in self.messages:
            before = row_of(message)
            while rest and rest[0].row < (1 if before is None else before):
                yield self.follow(rest.pop(0).value, f"{self.info.rkey}-state")
            yield self.told(message) if self.is_on_way(message) else self.aside(message)
        for each in rest:
            yield self.follow(each.value, f"{self.info.rkey}-state")
        if self.side is not None:
            yield self.follow({"type": "custom", "customType": LEAF}, f"{self.info.rkey}-leaf")

    def beside(self) -> list[Row]:
        """What is no message, in its order. What edits did is told by the messages."""
        if self.kept is None:
            title = self.info.title
            return [] if title is None else [Row(0, {"type": "session_info", "name": title})]
        return [
            row
            for row in self.kept.entries
            if row.type not in (EDIT, "session") and row.value.get("customType") != LEAF
        ]

    def is_on_way(self, message: Message) -> bool:
        """Whether the model was given a message, or a summary of it that begins its window."""
        if message.active:
            return pairing.ORPHAN not in message.flags
        return self.first is not None and self.is_under(message.rkey, self.first)

    def is_under(self, rkey: str, summary: str) -> bool:
        over = self.over.get(rkey)
        passed = {rkey}
        while over is not None and over not in passed:
            if over == summary:
                return True
            passed.add(over)
            over = self.over.get(over)
        return False

    def told(self, message: Message) -> dict[str, Any]:
        ends = message.compacted_message_ids is not None and all(
            self.is_under(each, message.rkey) for each in self.given
        )
        if ends:
            self.given.clear()
        if not message.flags:
            self.given.append(message.rkey)
        return self.follow(entry_of(message, ends=ends), message.rkey)

    def follow(self, entry: Mapping[str, Any], name: str) -> dict[str, Any]:
        made = self.placed(entry, name, self.tip)
        self.tip, self.side = made["id"], None
        return made

    def aside(self, message: Message) -> dict[str, Any]:
        made = self.placed(entry_of(message, ends=False), message.rkey, self.side or self.tip)
        self.side = made["id"]
        return made

    def placed(self, entry: Mapping[str, Any], name: str, parent: str | None) -> dict[str, Any]:
        """An entry behind another one, under its own id, or the name if it has none."""
        own = entry.get("id")
        wanted = name = own if isinstance(own, str) and own not in self.ids else name
        number = 1
        while wanted in self.ids:
            number += 1
            wanted = f"{name}-{number}"
        self.ids.add(wanted)
        made = {"type": entry.get("type"), "id": wanted, "parentId": parent}
        made["timestamp"] = entry.get("timestamp", self.info.created_at)
        made |= {key: value for key, value in entry.items() if key not in made}
        if made["type"] == COMPACTION:
            made["firstKeptEntryId"] = wanted
        return made


def _line(value: Mapping[str, Any]) -> bytes:
    return dumps(dict(value)).encode() + b"\n"
