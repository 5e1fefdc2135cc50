"""The records that a session becomes."""

from dataclasses import dataclass, field
from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_tid
from lettaspace.atproto.uri import parse_record_uri
from lettaspace.conversation import codec
from lettaspace.conversation.derive import conversation_tid, message_tid
from lettaspace.conversation.jsontext import well_formed
from lettaspace.conversation.pi_entry import PI_ENTRY
from lettaspace.conversation.records import COMPACTED, Address, Envelope, clip, envelope
from lettaspace.conversation.shapes import SHAPES
from lettaspace.conversation.times import to_millis
from lettaspace.conversation.unstored import without_authentication
from lettaspace.errors import InvalidInput
from lettaspace.pi.session import NO_TIME, Finding, Row, Session
from lettaspace.pi.tree import COMPACTION, Replay, is_message, replay, role
from lettaspace.space.writes import Value

AGENT = "pi"
"""The key and the name of the agent that all sessions hang on: pi has none of its own."""

PI_SESSION = "pi.session"
MARK = "lettaspace"
"""The key of what this program writes into a session's header."""

MAX_DAMAGE = 100

Blobs = dict[CID, bytes]


def agent_record() -> Value:
    return {"name": AGENT, "description": "Sessions of pi, the coding agent."}


@dataclass(slots=True)
class Built:
    """What is to be stored of a session."""

    session: Session
    rkey: str
    """The conversation's."""
    address: Address
    made: Replay
    findings: list[Finding]
    created: list[str] = field(default_factory=list[str])
    """The time of each entry."""
    in_window: frozenset[int] = frozenset()
    messages: list[int] = field(default_factory=list[int])
    """The entries that are messages, by their place."""
    tids: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def uri(self) -> str:
        return self.address.conversation(self.rkey)

    @property
    def aside(self) -> int:
        """Messages of other branches than the one that the session stands at."""
        way = set(self.made.path(self.made.leaf))
        return sum(at not in way for at in self.messages)

    def conversation(self) -> Value:
        value: Value = {
            "agent": self.address.agent(AGENT),
            "createdAt": self.session.created_at,
        }
        if (left := self._forked_from()) is not None:
            value["forkedFrom"] = left
        return value

    def _forked_from(self) -> Value | None:
        """Where a session began that was exported from a conversation of this author's."""
        mark = self.session.header.get(MARK)
        left = mark.get("forkedFrom") if isinstance(mark, dict) else None
        if not isinstance(left, dict) or left.keys() != {"conversation", "message"}:
            return None
        for each in left.values():
            if not isinstance(each, dict) or each.keys() != {"uri", "cid"}:
                return None
            if not all(isinstance(text, str) for text in each.values()):
                return None
            try:
                CID.parse(each["cid"])
                parse_record_uri(each["uri"])
            except InvalidInput:
                return None
            if not each["uri"].startswith(self.address.prefix):
                return None
        return left

    def state(self, blobs: Blobs) -> Value:
        """The sidecar: what the file holds beside messages, and what lists of them show."""
        session = self.session
        said = max((self.created[at] for at in self.messages), key=to_millis, default=None)
        updated = max(self.created, key=to_millis, default=session.created_at)
        value: Value = {"conversation": self.uri, "updatedAt": updated}
        if title := clip(_name(session), 8192):
            value["title"] = title
        if said is not None:
            value["lastMessageAt"] = said
        if cwd := clip(session.header.get("cwd"), 8192):
            value["cwd"] = cwd
        if any(finding.is_loss for finding in self.findings):
            value["incomplete"] = True
        if self.findings:
            value["damage"] = _damage(self.findings)
        rest = [
            {"row": row.row, "entry": row.value} for row in session.entries if not is_message(row)
        ]
        data = {"header": session.header, "entries": rest}
        value["state"] = _sealed(PI_SESSION, data, blobs)
        return value

    def message(self, at: int, blobs: Blobs) -> Value:
        """The record of a message."""
        row, made = self.session.entries[at], self.made
        data: dict[str, Any] = {"entry": _kept(row), "row": row.row}
        if made.edits.get(at) is not None:
            data["content"] = made.edits[at]
        value: Value = {
            "conversation": self.uri,
            "agent": self.address.agent(AGENT),
            "role": record_role(row),
            "message": _sealed(PI_ENTRY, data, blobs),
            "createdAt": self.created[at],
        }
        return value | self.standing(at)

    def standing(self, at: int) -> Value:
        """What the conversation around it makes of a message: seq, status, what it covers."""
        made = self.made
        value: Value = {"seq": made.seqs[at]}
        if at not in self.in_window:
            value["status"] = COMPACTED
        if (by := made.touched_by[at]) is not None:
            value["updatedAt"] = self.created[by]
        if self.session.entries[at].type == COMPACTION:
            value["compactedMessageIds"] = [self.tids[each] for each in made.covers.get(at, ())]
        return value


def session_tid(session: Session, ordinal: int = 0) -> str:
    """The key of the conversation that a session is, wherever it is read; `ordinal` counts how
    often another conversation had it."""
    return conversation_tid(f"{PI_SESSION} {session.id}", session.created_at, ordinal)


def build(session: Session, rkey: str, address: Address) -> Built:
    """Works out what is to be stored, but for the messages' keys."""
    made = replay(session)
    built = Built(session, rkey, address, made, [*session.findings, *made.findings])
    built.in_window = frozenset(made.window)
    last = session.created_at
    for at, row in enumerate(session.entries):
        if is_message(row):
            built.messages.append(at)
            if row.time is None:
                built.findings.append(Finding(NO_TIME, row.row))
        last = row.time or last
        built.created.append(last)
    return built


class Keys:
    """Gives each message of a session its key.

    `taken(tids)` says which of them other conversations have. The key of a message that is
    `stored` under the very name of its entry is that name: this program wrote it.
    """

    def __init__(self, built: Built, stored: frozenset[str]) -> None:
        self.built = built
        self.stored = stored
        self.names: dict[int, tuple[str, str, str, str, int]] = {}
        self.probes: dict[int, int] = {}
        self.used: set[str] = set()
        counts: dict[tuple[str, ...], int] = {}
        for at in built.messages:
            row = built.session.entries[at]
            name = row.id or ""
            if name in stored and is_tid(name) and name not in self.used:
                built.tids[at] = name
                self.used.add(name)
                continue
            call = row.message.get("toolCallId")
            same = (
                record_role(row),
                row.type or "",
                built.created[at],
                call if isinstance(call, str) else "",
            )
            self.names[at] = (*same, counts.get(same, 0))
            counts[same] = counts.get(same, 0) + 1
        for at in self.names:
            self.derive(at)

    def derive(self, at: int) -> None:
        while True:
            probe = self.probes.get(at, 0)
            found = message_tid(self.built.rkey, *self.names[at], probe)
            if found not in self.used:
                break
            self.probes[at] = probe + 1
        self.used.add(found)
        self.built.tids[at] = found

    def avoid(self, taken: frozenset[str]) -> bool:
        """Gives other keys instead of those that other conversations have; whether there were
        any."""
        moved = [at for at in self.names if self.built.tids[at] in taken]
        for at in moved:
            self.probes[at] = self.probes.get(at, 0) + 1
            self.derive(at)
        return bool(moved)


def record_role(row: Row) -> str:
    found = role(row)
    return found if found and well_formed(found) else "unknown"


def _kept(row: Row) -> dict[str, Any]:
    """An entry without what is never stored: authentication in what providers answered."""
    message = row.message
    if message.get("role") != "assistant":
        return row.value
    kept = without_authentication(message)
    return row.value if kept is message else {**row.value, "message": kept}


def _name(session: Session) -> Any:
    """What the user called the session last."""
    for row in reversed(session.entries):
        if row.type == "session_info":
            name = row.value.get("name")
            return name.strip() if isinstance(name, str) else None
    return None


def _damage(findings: list[Finding]) -> list[Value]:
    """The first hundred, what was lost before what is only odd."""
    entries = []
    for finding in sorted(findings, key=lambda each: not each.is_loss)[:MAX_DAMAGE]:
        entry: Value = {"kind": finding.kind}
        if finding.row is not None:
            entry["row"] = finding.row
        if finding.note:
            entry["note"] = finding.note
        entries.append(entry)
    return entries


def _sealed(format: str, data: dict[str, Any], blobs: Blobs) -> Envelope:  # noqa: A002
    encoded = codec.encode(data, SHAPES[format, 1])
    blobs.update(encoded.blobs)
    return envelope(format, 1, encoded.value)
