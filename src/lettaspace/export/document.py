"""What of a conversation goes into a file, read as it is written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lettaspace.conversation import pairing, reading
from lettaspace.conversation.message import Message
from lettaspace.conversation.overview import ConversationInfo
from lettaspace.conversation.redaction import Redacting
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.export import jsonform
from lettaspace.export.jsonform import Json

TRANSCRIPT = "transcript"
WINDOW = "window"

MAX_RESULTS = 256
"""Results behind a message that are kept waiting to be shown with their calls."""


@dataclass(frozen=True, slots=True)
class Document:
    """A conversation to be exported. All but the messages is redacted already, if it is to be;
    their payloads are by whoever decodes them, with `redaction`."""

    conversation: ConversationInfo
    agent_name: str | None
    prompt: Json | None
    """The compiled prompt, as `lettaspace prompt --json` has it; or why it is `unreadable`."""
    part: str
    """`transcript` or `window`."""
    messages: Iterator[Message]
    """Read once, each when it is asked for."""
    redaction: Redacting | None = None
    left_out: list[Json] = field(default_factory=list[Json])
    """Of a window: what no model can be given. Complete when all messages are read."""

    def text(self, text: str) -> str:
        """A text of a message that stands outside of its payload."""
        return text if self.redaction is None else self.redaction.text(text)

    @property
    def prompt_text(self) -> str | None:
        """The compiled prompt, or that it cannot be read; None where there is none."""
        if self.prompt is None:
            return None
        if "unreadable" in self.prompt:
            return f"It cannot be read: {self.prompt['unreadable']}."
        return str(self.prompt.get("content", ""))

    def payload(self, payload: Any) -> Any:
        """A decoded payload."""
        return payload if self.redaction is None else self.redaction.json(payload)


def open_document(
    space: Space, name: str, *, window: bool = False, redaction: Redacting | None = None
) -> Document:
    """The document of the conversation called so (see `Space.conversation`): every message
    that was kept, or what the model sees. Without a redaction it has everything.

    Raises NotFound or Ambiguous.
    """
    found = space.conversation_info(name)
    agent_name = _agent_name(space, found.agent)
    prompt = _prompt(space, found, redaction)
    if redaction is not None:
        found = _redacted(found, redaction)
        agent_name = agent_name and redaction.text(agent_name)
        prompt = prompt and redaction.json(_without_hashes(prompt))
    left_out: list[Json] = []
    messages = _window(space, found.uri, left_out) if window else space.transcript(found.uri)
    part = WINDOW if window else TRANSCRIPT
    return Document(found, agent_name, prompt, part, messages, redaction, left_out)


def turns(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages in order, in groups: one that calls tools, and the results directly behind
    it; any other by itself."""
    group: list[Message] = []
    for message in messages:
        if group and (message.role != "toolResult" or len(group) > MAX_RESULTS):
            yield group
            group = []
        if group or (message.role == "assistant" and pairing.calls(message)):
            group.append(message)
        else:
            yield [message]
    if group:
        yield group


def _agent_name(space: Space, uri: str) -> str | None:
    try:
        return space.record(uri).value.get("name")
    except (InvalidInput, NotFound):  # only its messages name the conversation
        return None


def _prompt(space: Space, found: ConversationInfo, redaction: Redacting | None) -> Json | None:
    try:
        return jsonform.prompt(space, found.rkey, found.uri)
    except (Damaged, InvalidInput, NotFound) as error:  # a large one, of which a part is lost
        return {"unreadable": jsonform.reason(error, redaction)}


def utc(text: str) -> str:
    """A stored time in UTC, wherever the file is made; as it stands where it is no time."""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text[:40]
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _window(space: Space, conversation: str, left_out: list[Json]) -> Iterator[Message]:
    with space.database.read() as connection:
        for message in reading.stream_active(connection, conversation, space.repo.get_blob):
            if message.flags:
                left_out.append(jsonform.left_out(message))
            else:
                yield message


def _redacted(found: ConversationInfo, redaction: Redacting) -> ConversationInfo:
    return replace(
        found,
        title=found.title and redaction.text(found.title),
        tags=tuple(map(redaction.text, found.tags)),
        cwd=found.cwd and redaction.text(found.cwd),
        damage=tuple(redaction.json(dict(each)) for each in found.damage),
        letta=redaction.json(dict(found.letta)),
        forked_from=_without_cids(found.forked_from) if found.forked_from else None,
    )


def _without_cids(fork: Any) -> Any:
    return {
        key: {"uri": at["uri"]} if isinstance(at, dict) and "uri" in at else at
        for key, at in fork.items()
    }


def _without_hashes(prompt: Json) -> Json:
    return {key: value for key, value in prompt.items() if key not in ("cid", "rawSystemHash")}
