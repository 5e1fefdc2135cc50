"""What was acknowledged on any machine, and whether all of it is still there.

A message is known by its text, which begins with the TID of the conversation it was written in:
`TALK.NUMBER`, and after a rewrite `TALK.NUMBER~VERSION`. A tool result is known by its call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lettaspace.conversation.message import Message
from lettaspace.conversation.records import CONVERSATION, CONVERSATION_STATE, MESSAGE, rkey_of
from lettaspace.conversation.space import Space
from tests.conformance.kit import word


def name(message: Message) -> str:
    """What stays the same of a message whatever becomes of it; its copies have it too."""
    payload = message.payload()
    if message.role == "toolResult":
        return f"={payload['toolCallId']}"
    return word(message).partition("~")[0]


@dataclass(frozen=True, slots=True)
class Said:
    """A message that a machine acknowledged."""

    rkey: str
    talk: str
    """The TID of the conversation it was written in."""
    name: str
    after: frozenset[str]
    """What stood before it when it was said, by name; of a summary, what it covers."""


class Ledger:
    """Is told of everything that a machine wrote itself."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self.replaced: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By record, the texts that a machine which had seen them put another in the place of."""

    def note(
        self, space: Space, since: str | None, window: Sequence[Message], plain: bool = True
    ) -> None:
        """Takes the new messages of a machine, since a revision of its own, as acknowledged.

        `window` is what stood in the conversation before; not `plain`: they are copies, or
        results, which stand wherever they belong.
        """
        names = {message.rkey: name(message) for message in window}
        for op in space.repo.ops(since):
            if op.collection != MESSAGE or op.prev is not None:
                continue
            stored = space.repo.get(MESSAGE, op.rkey)
            assert stored is not None
            uri = stored.value["conversation"]
            message = space.message(uri, op.rkey)
            listed = message.compacted_message_ids
            if listed is not None:
                # Of a chain, an earlier summary is covered as well.
                after = frozenset(names[rkey] for rkey in listed if rkey in names)
            else:
                after = frozenset(names.values()) if plain else frozenset()
            said = Said(op.rkey, rkey_of(uri), name(message), after)
            assert op.rkey not in self.said, "a TID was minted twice"
            self.said[op.rkey] = said

    def replace(self, collection: str, rkey: str, text: str) -> None:
        """A machine put another text in this one's place."""
        self.replaced[collection, rkey].add(text)


@dataclass(frozen=True, slots=True)
class Shown:
    """How all conversations are seen on a machine."""

    windows: dict[str, list[str]]
    """By conversation: TID and text of each message in it."""
    transcripts: dict[str, list[str]]
    prompts: dict[str, str]

    @classmethod
    def by(cls, space: Space) -> Shown:
        talks = [info.uri for info in space.conversations()]
        prompts = {rkey_of(uri): space.prompt(rkey_of(uri)) for uri in talks}
        return cls(
            {rkey_of(uri): _texts(space.window(uri).messages) for uri in talks},
            {rkey_of(uri): _texts(space.transcript(uri)) for uri in talks},
            {talk: found.value["content"] for talk, found in prompts.items() if found is not None},
        )


def _texts(messages: Iterable[Message]) -> list[str]:
    return [f"{message.rkey} {word(message)}" for message in messages]


def check_all_is_there(ledger: Ledger, space: Space) -> None:
    """Every acknowledged message is there once, where it belongs, and says its newest text."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    strayed: list[tuple[str, list[str]]] = []
    for uri in sorted(info.uri for info in space.conversations()):
        talk = rkey_of(uri)
        line = _ancestry(space, talk)
        active = {message.rkey for message in space.active(uri)}
        transcript = list(space.transcript(uri))
        before: set[str] = set()
        rkeys = {message.rkey: message for message in transcript}
        for message in transcript:
            places[message.rkey].append(talk)
            if _origin(name(message)) not in line:
                strayed.append((message.rkey, line))
            where = f"{message.rkey} ({word(message)}) in {talk}"
            assert message.rkey in active or message.covered_by in rkeys, (
                f"{where} is in no window and no summary"
            )
            assert not (message.rkey in active and message.covered_by), where
            said = ledger.said.get(message.rkey)
            if said is not None:
                assert name(message) == said.name, where
                listed = message.compacted_message_ids
                seen = before if listed is None else {name(rkeys[each]) for each in listed}
                lacking = said.after - seen
                assert not lacking, f"{where} was said after {sorted(lacking)}"
            old = ledger.replaced[MESSAGE, message.rkey]
            assert word(message) not in old, f"{where} is what was replaced"
            before.add(name(message))
    twice = {rkey: talks for rkey, talks in places.items() if len(talks) > 1}
    assert not twice, f"there more than once: {twice}"
    lost = ledger.said.keys() - places.keys()
    assert not lost, f"lost: {[ledger.said[rkey] for rkey in sorted(lost)]}"
    for rkey, line in strayed:
        _check_stray(ledger, space, places, rkey, line)


def _origin(name: str) -> str:
    """The TID of the conversation that a message was written in."""
    return name.removeprefix("=").partition(".")[0]


def _check_stray(
    ledger: Ledger,
    space: Space,
    places: Mapping[str, Sequence[str]],
    rkey: str,
    line: Sequence[str],
) -> None:
    """A message stands in the conversation it was written in, or in a fork of it. In another
    fork of what that one left it stands only where something went that it came after."""
    said = ledger.said[rkey]
    shared = set(_ancestry(space, _origin(said.name)))
    own = [talk for talk in line if talk not in shared]
    where = f"{rkey} of {_origin(said.name)} stands in {line[0]}, a fork of {line[1:]}"
    assert len(own) < len(line), where
    before = said.after or {said.name.removeprefix("=").partition("/")[0]}
    there = {each for each, talks in places.items() if talks[0] in own and each != rkey}
    assert any(each in ledger.said and ledger.said[each].name in before for each in there), where


def _ancestry(space: Space, talk: str) -> list[str]:
    """A conversation, the one that it left, the one which that left, and so on."""
    line = [talk]
    while (left := _left(space, line[-1])) is not None:
        line.append(left)
        assert len(line) < 100, "conversations that left each other"
    return line


def _left(space: Space, talk: str) -> str | None:
    """The conversation that this one is a fork of."""
    record = space.repo.get(CONVERSATION, talk)
    assert record is not None, f"conversation {talk} has no record"
    if "forkedFrom" in record.value:
        return rkey_of(record.value["forkedFrom"]["conversation"]["uri"])
    # Where two machines began one, there is no message to fork from; only a note tells.
    state = space.repo.get(CONVERSATION_STATE, talk)
    damage = [] if state is None else state.value.get("damage", [])
    others = [each["note"].split()[-1] for each in damage if each["kind"] == "diverged"]
    return min((other for other in others if other < talk), default=None)
