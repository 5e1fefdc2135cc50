"""What the contract's tests have in common: short payloads, and how a conversation is seen.

Every message is known by its text, so that a window can be written down as a list of words.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lettaspace.conversation.handle import Compaction, Conversation
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import MESSAGE, envelope
from lettaspace.conversation.space import Space
from lettaspace.space.writes import Create, Op, Record, Update

Json = dict[str, Any]

TIME = "2024-03-05T10:00:00.000Z"
UNKNOWN = ("acme.msg", 1)


def user(text: str, **more: Any) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}], **more}


def says(text: str, *calls: str, **more: Any) -> Json:
    """An assistant's message, with a tool call for every id."""
    parts: list[Json] = [{"type": "text", "text": text}]
    parts += [{"type": "toolCall", "id": each, "name": "ls", "arguments": {}} for each in calls]
    return {"role": "assistant", "content": parts, **more}


def result(text: str, call: str, **more: Any) -> Json:
    content = [{"type": "text", "text": text}]
    return {"role": "toolResult", "toolCallId": call, "content": content, **more}


def word(message: Message) -> str:
    """What a message is known by: its text; of the result that settles a call, `!` and the
    call's id; of an unknown format, `?` and what it says."""
    payload = message.payload()
    if (message.format, message.version) == UNKNOWN:
        return f"?{payload['said']}"
    if payload.get("isError") and payload["id"].startswith("settled-"):
        return f"!{payload['toolCallId']}"
    (text,) = [part["text"] for part in payload["content"] if part["type"] == "text"]
    return str(text)


def words(messages: Iterable[Message]) -> list[str]:
    return [word(message) for message in messages]


class Talk:
    """A conversation under test."""

    def __init__(self, handle: Conversation) -> None:
        self.handle = handle
        self.space = handle.space

    @classmethod
    def new(cls, space: Space, title: str = "Jars") -> "Talk":
        agent = space.create_agent("Otter")
        return cls(space.create_conversation(agent, title=title))

    def seen_by(self, space: Space) -> "Talk":
        """The same conversation through another handle."""
        return Talk(space.conversation(self.handle.uri))

    def add(self, *payloads: Json) -> list[Message]:
        return [self.handle.append(payload) for payload in payloads]

    def users(self, text: str) -> list[Message]:
        """A user's message for every letter."""
        return self.add(*map(user, text))

    def unknown(self, said: str) -> Message:
        name, version = UNKNOWN
        return self.handle.append({"said": said}, role="observer", format=name, version=version)

    def compact(
        self, count: int, summary: str = "S", *, key: str | None = None
    ) -> Compaction | None:
        """Summarises so many messages from the start of the window."""
        return self.handle.compact(lambda _covered: summary, lambda _window: count, key=key)

    @property
    def window(self) -> list[str]:
        return words(self.handle.window().messages)

    @property
    def transcript(self) -> list[str]:
        return words(self.handle.transcript())

    @property
    def seqs(self) -> list[int]:
        return [message.seq for message in self.handle.window().messages]

    def of(self, text: str) -> Message:
        """The message known by a word."""
        (found,) = [each for each in self.handle.transcript() if word(each) == text]
        return found

    def records(self) -> list[Record]:
        """Every message record of the conversation, by seq."""
        found = [
            each
            for each in self.space.repo.records(MESSAGE)
            if each.value["conversation"] == self.handle.uri
        ]
        return sorted(found, key=lambda each: (each.value["seq"], each.rkey))

    def plain(self) -> list[str]:
        """The rkeys of the window as any reader of the lexicon derives it: what is not marked
        compacted, in seq order."""
        return [each.rkey for each in self.records() if each.value.get("status") != "compacted"]

    def ops(self) -> list[Op]:
        return list(self.space.repo.ops())

    def foreign(self, seq: int, payload: Json, *, rkey: str | None = None, **fields: Any) -> str:
        """Writes a message record as another writer of the lexicon might."""
        value = {
            "conversation": self.handle.uri,
            "agent": self.handle.agent,
            "role": payload["role"],
            "seq": seq,
            "message": envelope("letta.localMessage", 1, payload),
            "createdAt": TIME,
            **fields,
        }
        (written,) = self.space.repo.apply_writes([Create(MESSAGE, rkey, value)])
        return written.rkey

    def remark(self, rkey: str, **fields: Any) -> None:
        """Changes core fields of a record; None removes one."""
        stored = self.space.repo.get(MESSAGE, rkey)
        assert stored is not None
        value = {key: each for key, each in {**stored.value, **fields}.items() if each is not None}
        self.space.repo.apply_writes([Update(MESSAGE, rkey, value)])


def check_readable(talk: Talk) -> None:
    """What holds in every state, whatever a crash cut off."""
    active = talk.space.active(talk.handle.uri)
    rkeys = [message.rkey for message in active]
    assert len(set(rkeys)) == len(rkeys), "a message stands twice in the window"
    whole = [message.rkey for message in talk.handle.transcript()]
    assert len(set(whole)) == len(whole), "a message stands twice in the transcript"
    assert sorted(whole) == sorted(each.rkey for each in talk.records()), "a message is lost"
    assert set(rkeys) <= set(whole)
    check_paired(talk.handle.window().messages)
    seqs = [each.value["seq"] for each in talk.records()]
    assert len(set(seqs)) == len(seqs), "two messages share a seq"
    assert [str(problem) for problem in talk.space.verify()] == []


def check_paired(messages: Sequence[Message]) -> None:
    """A result never stands without its call before it."""
    called: set[str] = set()
    for message in messages:
        payload = message.payload()
        if message.role == "toolResult":
            assert payload["toolCallId"] in called
        elif message.role == "assistant":
            called |= {part["id"] for part in payload["content"] if part["type"] == "toolCall"}


def check(talk: Talk) -> None:
    """What holds once everything is done: marks and seqs alone give the window."""
    check_readable(talk)
    active = talk.space.active(talk.handle.uri)
    assert talk.plain() == [message.rkey for message in active]
    before = talk.ops()
    assert talk.handle.repair() == 0
    assert talk.ops() == before


def fails(error: Exception) -> Callable[[Sequence[Message]], str]:
    """A summariser that fails."""

    def summarize(_covered: Sequence[Message]) -> str:
        raise error

    return summarize
