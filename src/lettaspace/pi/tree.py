"""What the model is given of a session, and how that came about.

The entries are a tree; the last one in the file is the leaf, and the way from the root to it is
the conversation. The newest compaction on it stands for what comes before the entry that it
kept first. Entries that change what the model sees of others (`context_edit`) change no entry.

Source: `buildSessionProjection` and `convertToLlm` of pi 1.6; 0.73 does the same with what it
knows of this.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lettaspace.pi.session import MISSING_PARENT, NO_ID, SAME_ID, Finding, Row, Session

COMPACTION = "compaction"
EDIT = "context_edit"

ROLES = ("system", "user", "assistant", "toolResult")
"""What providers are given; pi makes user messages of what else it gives the model."""

_AS_USER = ("bashExecution", "custom", "hookMessage")
_EDITED = ("user", "assistant", "toolResult", "custom", "hookMessage")


def is_message(row: Row) -> bool:
    """Whether an entry is something said, a summary included; all else is state."""
    if row.type == "message":
        return isinstance(row.value.get("message"), dict)
    return row.type in (COMPACTION, "branch_summary", "custom_message")


def role(row: Row) -> str:
    """The role of an entry's message, as the model sees it; its own, of what no model sees."""
    if row.type != "message":
        return "user"
    own = row.message.get("role")
    if own in _AS_USER:
        return "user"
    return own if isinstance(own, str) else ""


def is_given(row: Row) -> bool:
    """Whether pi gives the model what an entry says, while it stands on the way to the leaf."""
    if row.type == "branch_summary":
        return bool(row.value.get("summary"))
    if row.type != "message":
        return is_message(row)
    if row.message.get("excludeFromContext") is True and row.message.get("role") in _AS_USER[:1]:
        return False
    return role(row) in ROLES


@dataclass(slots=True)
class Replay:
    """What became of each entry of a session, by its place in `entries`."""

    entries: Sequence[Row]
    parents: list[int | None]
    window: list[int] = field(default_factory=list[int])
    """What the model is given, in order."""
    edits: dict[int, Any] = field(default_factory=dict[int, Any])
    """The content that stands in the place of an entry's own."""
    seqs: list[int] = field(default_factory=list[int])
    """0 for what is no message."""
    touched_by: list[int | None] = field(default_factory=list[int | None])
    """The entry that last made another record of this one's."""
    covers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """What each compaction summarises, in seq order."""
    leaf: int | None = None
    findings: list[Finding] = field(default_factory=list[Finding])

    def path(self, leaf: int | None) -> list[int]:
        """The way from the root to an entry."""
        found = []
        while leaf is not None:
            found.append(leaf)
            leaf = self.parents[leaf]
        found.reverse()
        return found


def replay(session: Session) -> Replay:
    """Follows a session from its first entry to its last, as a writer of the space would."""
    findings: list[Finding] = []
    parents = _parents(session, findings)
    made = Replay(session.entries, parents, findings=findings)
    _Replaying(session, made).run()
    return made


def _parents(session: Session, findings: list[Finding]) -> list[int | None]:
    """The place of each entry's parent, which always stands before it."""
    entries = session.entries
    if session.version < 2:
        return [at - 1 if at else None for at in range(len(entries))]
    places: dict[str, int] = {}
    parents: list[int | None] = []
    for at, row in enumerate(entries):
        name = row.value.get("parentId")
        parent = places.get(name) if isinstance(name, str) else None
        if row.type == "session":  # a second header is no entry
            parents.append(None)
            continue
        if name and parent is None:
            findings.append(Finding(MISSING_PARENT, row.row))
        parents.append(parent)
        if row.id is None:
            findings.append(Finding(NO_ID, row.row))
            continue
        if row.id in places:
            findings.append(Finding(SAME_ID, row.row))
        places[row.id] = at
    return parents


@dataclass(slots=True)
class _Context:
    window: list[int]
    edits: dict[int, Any]


class _Replaying:
    def __init__(self, session: Session, made: Replay) -> None:
        self.session = session
        self.entries = session.entries
        self.made = made
        self.places = {row.id: at for at, row in enumerate(self.entries) if row.id is not None}
        self.now = _Context([], {})
        self.covered: dict[int, list[int]] = {}
        self.top = 0
        size = len(self.entries)
        made.seqs, made.touched_by = [0] * size, [None] * size

    def run(self) -> None:
        bad = sorted(self.session.bad_rows, reverse=True)
        for at, row in enumerate(self.entries):
            while bad and bad[-1] <= row.row:
                bad.pop()
                self.top += 1  # so that the file, once repaired, only adds
            if row.type == "session":
                continue
            if is_message(row):
                self.top += 1
                self.made.seqs[at] = self.top
            left, self.made.leaf = self.made.leaf, at
            follows = self.made.parents[at] == left
            if follows and row.type not in (COMPACTION, EDIT):
                if is_given(row):
                    self.now.window.append(at)
                continue
            if row.type == COMPACTION:
                path = self.made.path(self.made.parents[at])
                before = self.now.window if follows else self.context(path).window
                self.covered[at] = list(before)
            self.turn(at, None if follows else left)
            if row.type == COMPACTION:
                kept = set(self.now.window)
                self.covered[at] = [each for each in self.covered[at] if each not in kept]
        self.made.window, self.made.edits = self.now.window, self.now.edits
        self.list_covered()

    def turn(self, at: int, left: int | None) -> None:
        """Another window than the one before with an entry more; `left` is the leaf of the
        branch that was left for this entry's."""
        way = self.made.path(at)
        new, old = self.context(way), self.now
        touched = set(new.window) ^ set(old.window)
        if left is not None:
            touched |= set(way) ^ set(self.made.path(left))
        touched |= {
            each
            for each in new.edits.keys() | old.edits.keys()
            if new.edits.get(each) is not old.edits.get(each)
        }
        last = 0
        for each in new.window:
            if self.made.seqs[each] <= last:
                self.top += 1
                self.made.seqs[each] = self.top
                touched.add(each)
            last = self.made.seqs[each]
        for each in touched - {at}:
            self.made.touched_by[each] = at
        self.now = new

    def context(self, path: Sequence[int]) -> _Context:
        """What the model is given at the end of a way."""
        entries = self.entries
        compactions = [at for at, each in enumerate(path) if entries[each].type == COMPACTION]
        newest = compactions[-1] if compactions else None
        seen: Iterable[int] = path
        if newest is not None:
            seen = (*self.kept(path[:newest], entries[path[newest]]), *path[newest + 1 :])
        seen = list(seen)
        edits: dict[int, Any] = {}
        for each in seen:
            if entries[each].type == EDIT:
                self.edit(entries[each].value, edits)
        given = [each for each in seen if entries[each].type != COMPACTION]
        if newest is not None:
            given.insert(0, path[newest])
        window = [
            each
            for each in given
            if is_given(entries[each]) and not (each in edits and edits[each] is None)
        ]
        return _Context(window, edits)

    def kept(self, before: Sequence[int], compaction: Row) -> list[int]:
        """What stands before a compaction and is not summarised by it."""
        first = compaction.value.get("firstKeptEntryId")
        start = self.places.get(first) if isinstance(first, str) else None
        if start is None and self.session.version < 2:
            index = compaction.value.get("firstKeptEntryIndex")
            # Counted from the header on.
            start = index - 1 if type(index) is int and index > 0 else None
        if start is None or start not in before:
            return []
        kept = before[before.index(start) :]
        return [each for each in kept if self.entries[each].message.get("role") != "system"]

    def edit(self, value: dict[str, Any], edits: dict[int, Any]) -> None:
        name, replacement = value.get("targetId"), value.get("replacement")
        target = self.places.get(name) if isinstance(name, str) else None
        if target is None:
            return
        row = self.entries[target]
        if replacement is None:
            edits[target] = None
        elif isinstance(replacement, dict) and (
            row.type == "custom_message" or row.message.get("role") in _EDITED
        ):
            edits[target] = replacement.get("content", "")

    def list_covered(self) -> None:
        """No message is listed twice, and none that stands in the window.

        Compactions of other branches list what only those branches have.
        """
        made = self.made
        way = made.path(made.leaf)
        on_way = set(way)
        gone = set(made.window)
        mine = [at for at in way if at in self.covered]
        for at in (*mine, *(each for each in self.covered if each not in on_way)):
            listed = [
                each
                for each in self.covered[at]
                if each not in gone and (at in on_way or each not in on_way)
            ]
            gone.update(listed)
            made.covers[at] = sorted(listed, key=made.seqs.__getitem__)
