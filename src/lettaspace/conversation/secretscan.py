"""Where secrets stand in a space: places and kinds, never values."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lettaspace.conversation import codec
from lettaspace.conversation.overview import ConversationInfo
from lettaspace.conversation.promptparts import stored_prompt
from lettaspace.conversation.redaction import Place, places
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, NotFound

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret, or a message that could not be looked at."""

    conversation: str
    """The conversation's TID; "" for what belongs to none."""
    what: str
    """`message`, `title`, `prompt` or `agent`."""
    place: Place | None
    """Within the payload or the record; None where it cannot be read."""
    rkey: str
    """Of the record."""
    seq: int | None = None
    """Of a message, as is the role."""
    role: str | None = None


def scan(
    space: Space, conversations: Iterable[ConversationInfo], step: Progress
) -> Iterator[Finding]:
    """Looks through titles, compiled prompts and all messages that are kept, compacted ones
    too, of these conversations. Holds one message at a time."""
    wanted = list(conversations)
    total, done = sum(each.messages for each in wanted), 0
    for each in wanted:
        for place in places({"title": each.title, "tags": list(each.tags), "cwd": each.cwd}):
            yield Finding(each.rkey, "title", place, each.rkey)
        yield from _prompt(space, each.rkey)
        for message in space.transcript(each.uri):
            rkey, seq, role = message.rkey, message.seq, message.role
            try:
                payload = message.payload(images=False)
            except (Damaged, NotFound):
                yield Finding(each.rkey, "message", None, rkey, seq, role)
            else:
                for place in places(payload):
                    yield Finding(each.rkey, "message", place, rkey, seq, role)
            done += 1
            step("messages", done, total)


def scan_agents(space: Space) -> Iterator[Finding]:
    """Looks through the records of all agents: names, templates, the harness's own settings."""
    for agent in space.agents():
        if not agent.recorded:
            continue
        value = dict(space.record(agent.uri).value)
        try:
            if state := value.get("state"):
                value["state"] = codec.decode(state["data"], space.repo.get_blob)
        except (Damaged, NotFound):
            yield Finding("", "agent", None, agent.rkey)
            continue
        for place in places(value):
            yield Finding("", "agent", place, agent.rkey)


def _prompt(space: Space, rkey: str) -> Iterator[Finding]:
    try:
        with space.repo.snapshot() as reader:
            prompt, _ = stored_prompt(reader, rkey)
    except (Damaged, NotFound, InvalidInput):
        yield Finding(rkey, "prompt", None, rkey)
        return
    for place in places({key: (prompt or {}).get(key) for key in ("content", "coreMemory")}):
        yield Finding(rkey, "prompt", place, rkey)
