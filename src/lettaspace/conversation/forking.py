"""Forking: a new conversation that begins as another one stood at some message.

The source is untouched. The fork holds copies with TIDs of its own, seqs from 1, and the
originals' payloads and `createdAt`; `forkedFrom` names where it left. It has no summaries of
its own: a summary copied from a window is an ordinary first message, and what it covers is
read in the source.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lettaspace.atproto.cid import CID
from lettaspace.conversation.message import Message
from lettaspace.conversation.records import MESSAGE, new_message
from lettaspace.conversation.writing import fresh_rkey
from lettaspace.errors import NotFound
from lettaspace.space.repo import EmbeddedRepo
from lettaspace.space.view import View
from lettaspace.space.writes import MAX_WRITES, Create, Value, Write


@dataclass(frozen=True, slots=True)
class Cut:
    """What a fork starts with, and the message it leaves from."""

    messages: list[Message]
    at: Message


def cut(window: Sequence[Message], transcript: Iterator[Message], rkey: str | None) -> Cut:
    """The messages up to a message: of the window if it stands there, else the originals.

    The window is all that is active, those included that a model is not given. `rkey` None:
    its end. Raises NotFound.
    """
    if rkey is None:
        if not window:
            raise NotFound("a conversation without messages cannot be forked")
        return Cut(list(window), window[-1])
    for at, message in enumerate(window):
        if message.rkey == rkey:
            return Cut(list(window[: at + 1]), message)
    originals: list[Message] = []
    for message in transcript:
        if message.rkey == rkey:
            if message.compacted_message_ids is not None:
                # A summary that a later one covers: as it once began a window.
                return Cut([message], message)
            return Cut([*originals, message], message)
        if message.compacted_message_ids is None:
            originals.append(message)
    raise NotFound(f"no message {rkey} in this conversation")


class Copy:
    """A plan that writes one batch of a fork's messages, with seqs from `first`."""

    def __init__(
        self,
        repo: EmbeddedRepo,
        conversation: str,
        agent: str,
        messages: Sequence[Message],
        first: int,
    ) -> None:
        self._repo = repo
        self._conversation = conversation
        self._agent = agent
        self._messages = messages
        self._first = first

    def __call__(self, view: View) -> Sequence[Write]:
        return [
            Create(MESSAGE, fresh_rkey(view, self._repo.clock), self._copy(message, seq))
            for seq, message in enumerate(self._messages, self._first)
        ]

    def _copy(self, message: Message, seq: int) -> Value:
        return new_message(
            self._conversation,
            self._agent,
            message.role,
            seq,
            message.value["message"],
            message.created_at,
        )


def batches(messages: Sequence[Message]) -> Iterator[tuple[int, Sequence[Message]]]:
    """The messages in batches that a repo takes, each with its first seq."""
    for start in range(0, len(messages), MAX_WRITES):
        yield start + 1, messages[start : start + MAX_WRITES]


def strong_ref(uri: str, cid: CID) -> Value:
    """A reference to one version of a record."""
    return {"uri": uri, "cid": str(cid)}
