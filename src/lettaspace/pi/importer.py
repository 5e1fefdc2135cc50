"""From a session file to records of the space.

The records are a function of the file: who imports it again writes nothing, and two machines
write the same. All of a file is stored, or nothing. What is stored is never taken away.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.conversation import codec
from lettaspace.conversation.index import find_conversation_id
from lettaspace.conversation.pi_entry import PI_ENTRY
from lettaspace.conversation.records import AGENT as AGENTS
from lettaspace.conversation.records import CONVERSATION, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.conversation.times import to_millis, valid
from lettaspace.conversation.writing import message_value, top_seq
from lettaspace.errors import Conflict, Damaged, NotFound
from lettaspace.pi.build import AGENT, PI_SESSION, Blobs, Keys, agent_record, build, session_tid
from lettaspace.pi.session import OLDER_COPY, Finding, Session, read_session
from lettaspace.space import schema
from lettaspace.space.repo import Transaction
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Update, Value, Write

_index = schema.message_index.c
_names = schema.message_conversations.c


@dataclass(slots=True)
class Report:
    """What an import did with a file."""

    conversation: str
    """Its TID in the space."""
    session: str
    """pi's own id of it."""
    messages: int
    """Messages in the file."""
    aside: int
    """Those of them on other branches than the one that the session stands at."""
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    """Records of messages."""
    written: int = 0
    """Records written, of any kind."""
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def incomplete(self) -> bool:
        return any(finding.is_loss for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "conversation": self.conversation,
            "session": self.session,
            "messages": {
                "created": self.created,
                "updated": self.updated,
                "unchanged": self.unchanged,
            },
            "otherBranches": self.aside,
            "incomplete": self.incomplete,
            "damage": [finding.to_json() for finding in self.findings],
        }


def import_file(space: Space, path: Path) -> Report:
    """Brings a session file in.

    Raises InvalidInput for what is no session of pi's, StoreUnavailable for a file that cannot
    be read, and Conflict where the space and the file both have messages that the other lacks.
    """
    return import_session(space, read_session(path))


def import_session(space: Space, session: Session) -> Report:
    """The same with a session that has been read."""

    def store(tx: Transaction) -> Report:
        storing = _Storing(space, session, tx.view)
        for writes, blobs in storing.batches():
            tx.apply(writes, blobs=blobs)
        return storing.report

    return space.repo.run(store)


class _Storing:
    """What has to be written, by what is stored."""

    def __init__(self, space: Space, session: Session, view: View) -> None:
        self.space = space
        self.view = view
        self.writes: list[tuple[Write, Blobs]] = []
        built = build(session, self.conversation(session), space.address)
        self.built = built
        self.report = Report(
            built.rkey, session.id, len(built.messages), built.aside, findings=built.findings
        )
        self.stored = self.stored_messages()
        self.name()
        self.decide()
        self.report.written = len(self.writes)

    def batches(self) -> Iterator[tuple[list[Write], Blobs]]:
        for start in range(0, len(self.writes), MAX_WRITES):
            some = self.writes[start : start + MAX_WRITES]
            blobs = {cid: data for _, each in some for cid, data in each.items()}
            yield [write for write, _ in some], blobs

    def conversation(self, session: Session) -> str:
        """The key of the session's conversation; no other conversation is taken for it."""
        ordinal = 0
        while True:
            rkey = session_tid(session, ordinal)
            if self.view.get(CONVERSATION, rkey) is None or self.session_id(rkey) == session.id:
                return rkey
            ordinal += 1

    def session_id(self, rkey: str) -> str | None:
        """The session that a stored conversation is."""
        state = self.view.get(CONVERSATION_STATE, rkey)
        kept = state.value.get("state") if state is not None else None
        if kept is None or (kept["format"], kept["version"]) != (PI_SESSION, 1):
            return None
        try:
            data = codec.decode(kept["data"], self.view.get_blob)
        except (Damaged, NotFound):
            return None
        header = data.get("header") if isinstance(data, dict) else None
        return header.get("id") if isinstance(header, dict) else None

    def stored_messages(self) -> dict[str, bool]:
        """The TIDs of the conversation's messages, and which stand in the window."""
        rows = self.view.connection.execute(
            select(_index.rkey, _index.in_window)
            .join(schema.message_conversations, _names.id == _index.conversation)
            .where(_names.uri == self.built.uri)
        )
        return {row.rkey: bool(row.in_window) for row in rows}

    def name(self) -> None:
        keys = Keys(self.built, frozenset(self.stored))
        while True:
            new = [tid for tid in self.built.tids.values() if tid not in self.stored]
            if not keys.avoid(frozenset(self.view.cids(MESSAGE, new))):
                return

    def decide(self) -> None:
        built = self.built
        here = set(built.tids.values())
        extra = self.stored.keys() - here
        new = [at for at in built.messages if built.tids[at] not in self.stored]
        if not extra:
            self.head()
            self.messages(built.messages)
            return
        if new and any(self.stored[tid] for tid in extra):
            raise Conflict(
                f"conversation {built.rkey} and the session went on separately: {len(extra)} "
                f"messages are only in the space, {len(new)} only in the file; nothing was stored"
            )
        note = f"{len(extra)} stored messages are not in this file"
        self.report.findings.append(Finding(OLDER_COPY, None, note))
        self.report.unchanged = len(built.messages) - len(new)
        self.behind(new)
        self.messages(new)

    def behind(self, new: Sequence[int]) -> None:
        """Gives new messages seqs after all that are stored."""
        number = find_conversation_id(self.view.connection, self.built.uri)
        top = 0 if number is None else top_seq(self.view.connection, number)
        seqs = self.built.made.seqs
        for seq, at in enumerate(sorted(new, key=seqs.__getitem__), top + 1):
            seqs[at] = seq

    def head(self) -> None:
        """The records beside the messages."""
        built = self.built
        if not self.view.has(AGENTS, AGENT):
            self.writes.append((Create(AGENTS, AGENT, agent_record()), {}))
        if not self.view.has(CONVERSATION, built.rkey):
            self.writes.append((Create(CONVERSATION, built.rkey, built.conversation()), {}))
        blobs: Blobs = {}
        state = built.state(blobs)
        stored = self.view.get(CONVERSATION_STATE, built.rkey)
        if stored is None:
            self.writes.append((Create(CONVERSATION_STATE, built.rkey, state), blobs))
            return
        time = valid(stored.value.get("updatedAt"))
        if time is None or to_millis(time) <= to_millis(state["updatedAt"]):
            self.put(CONVERSATION_STATE, built.rkey, stored.cid, state, blobs)

    def messages(self, wanted: Sequence[int]) -> None:
        built, report = self.built, self.report
        cids = self.view.cids(MESSAGE, [built.tids[at] for at in wanted])
        for at in wanted:
            rkey, blobs = built.tids[at], Blobs()
            cid = cids.get(rkey)
            if cid is None:
                value = built.message(at, blobs)
                self.writes.append((Create(MESSAGE, rkey, value), blobs))
                report.created += 1
            elif self.put(MESSAGE, rkey, cid, self.again(at, rkey, blobs), blobs):
                report.updated += 1
            else:
                report.unchanged += 1

    def again(self, at: int, rkey: str, blobs: Blobs) -> Value:
        """The record of a message that is stored. A payload that is from no file stays."""
        stored = message_value(self.view, rkey)
        kept = stored["message"]
        if kept["format"] == PI_ENTRY and not {"row", "$type"}.isdisjoint(kept["data"]):
            return self.built.message(at, blobs)
        changing = ("seq", "status", "updatedAt", "compactedMessageIds")
        same = {key: value for key, value in stored.items() if key not in changing}
        return same | self.built.standing(at)

    def put(self, collection: str, rkey: str, cid: CID, value: Value, blobs: Blobs) -> bool:
        """Replaces a stored record, if it is another; says whether it is."""
        if CID.for_cbor(cbor.encode({"$type": collection, **value})) == cid:
            return False
        self.writes.append((Update(collection, rkey, value, cid), blobs))
        return True
