"""A conversation to work with: what a harness author appends to, compacts and forks.

from lettaspace import Space

with Space.open(home) as space:
    agent = space.create_agent("Otter", system="You keep the jars.")
    talk = space.create_conversation(agent, title="Jars")
    talk.append({"role": "user", "content": [{"type": "text", "text": "List the jars."}]})
    for message in talk.window().messages:
        print(message.seq, message.role)
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lettaspace.atproto.cid import CID
from lettaspace.conversation import compaction, forking, reading, settling, writing
from lettaspace.conversation.compaction import Choose, Compact, Summarize
from lettaspace.conversation.forking import Copy
from lettaspace.conversation.local_message import summary_payload
from lettaspace.conversation.message import Message
from lettaspace.conversation.pairing import unanswered
from lettaspace.conversation.reading import Window
from lettaspace.conversation.records import CONVERSATION, LOCAL_MESSAGE, MESSAGE
from lettaspace.conversation.settling import Settle, placeholder_for
from lettaspace.conversation.writing import Append, Data, Rewrite
from lettaspace.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.memory import MemoryDirectory
    from lettaspace.conversation.overview import ConversationInfo
    from lettaspace.conversation.prompt import MemoryUpdate, PromptState
    from lettaspace.conversation.space import Space
    from lettaspace.space.writes import Record


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did."""

    summary: Message
    covered: int
    """Messages that the summary covers, an older summary counted as one."""
    asked: int
    """Where the window was to be cut: messages from its start."""
    boundary: int
    """Where it was cut, so that no tool call is parted from its results."""


class Conversation:
    """One conversation of a space. Holds no state: every call reads or writes the store."""

    def __init__(self, space: "Space", rkey: str, uri: str, agent: str) -> None:
        self.space = space
        self.rkey = rkey
        self.uri = uri
        self.agent = agent
        """The agent's URI."""

    def __repr__(self) -> str:
        return f"Conversation({self.rkey!r})"

    @property
    def info(self) -> "ConversationInfo":
        """Title, times and counts, as they are now."""
        return self.space.conversation_info(self.uri)

    def window(self) -> Window:
        """What the model is given: the active messages in order."""
        return self.space.window(self.uri)

    def transcript(self) -> Iterator[Message]:
        """Every message ever said, each once, summaries after what they cover."""
        return self.space.transcript(self.uri)

    def message(self, rkey: str) -> Message:
        """One message by its TID. Raises NotFound."""
        return self.space.message(self.uri, rkey)

    def append(
        self,
        payload: Data,
        *,
        role: str | None = None,
        key: str | None = None,
        created_at: str | None = None,
        format: str = LOCAL_MESSAGE,  # noqa: A002
        version: int = 1,
    ) -> Message:
        """Appends a message behind all others.

        `payload` is the harness's own message in a `format` and `version`; the role is the
        payload's unless given. With a `key`, appending the same again is the same message,
        and another message under it raises Conflict: so an append whose answer was lost can
        be repeated. A late result of a settled tool call takes the placeholder's place.
        `created_at` is a datetime; now unless given. Raises InvalidInput or InvalidRecord.
        """
        encoded = writing.encode(payload, role=role, name=format, version=version)
        now = self.space.now()
        plan = Append(
            self.uri,
            self.agent,
            encoded,
            key=key,
            created_at=created_at or now,
            updated_at=now,
            clock=self.space.repo.clock,
            late=placeholder_for,
        )
        written = self.space.repo.transact(plan, blobs=encoded.blobs)
        if plan.value is None or not written or written[0].cid is None:
            return self._wherever(plan.rkey)
        uri = self.space.address.uri(MESSAGE, plan.rkey)
        return reading.fresh(uri, plan.rkey, written[0].cid, plan.value, self.space.repo.get_blob)

    def _wherever(self, rkey: str) -> Message:
        """A message that may have moved to a fork since it was appended here."""
        stored = self.space.repo.get(MESSAGE, rkey)
        uri = self.uri if stored is None else str(stored.value["conversation"])
        return self.space.message(uri, rkey)

    def rewrite(
        self,
        rkey: str,
        payload: Data,
        *,
        expected: CID | None = None,
        format: str = LOCAL_MESSAGE,  # noqa: A002
        version: int = 1,
    ) -> Message:
        """Puts a new payload at a message's TID and seq.

        With `expected`, only while the record has that CID; raises Conflict with both CIDs
        otherwise. Raises NotFound.
        """
        stored = self.message(rkey)
        encoded = writing.encode(payload, role=stored.role, name=format, version=version)
        plan = Rewrite(rkey, encoded, expected=expected, updated_at=self.space.now())
        self.space.repo.transact(plan, blobs=encoded.blobs)
        return self.message(rkey)

    def pending(self) -> list[str]:
        """The ids of the tool calls in the window that have no result yet."""
        return [call.id for _, call in unanswered(self.space.active(self.uri))]

    def settle(
        self, call_ids: Collection[str] | None = None, *, text: str = settling.INTERRUPTED
    ) -> list[Message]:
        """Gives tool calls without a result an error result each; returns those results.

        All of the window's, or those named. Raises NotFound for an id that no call in the
        window has. Settling again changes nothing.
        """
        plan = Settle(
            self.space.repo,
            self.uri,
            self.agent,
            call_ids=call_ids,
            text=text,
            at=self.space.now(),
        )
        while not plan.done:
            self.space.repo.transact(plan)
        return sorted(map(self.message, plan.rkeys), key=lambda message: message.seq)

    def compact(
        self, summarize: Summarize, choose: Choose = len, *, key: str | None = None
    ) -> Compaction | None:
        """Puts a summary in the place of the first part of the window.

        `choose` says how many messages from the start (all, by default; see `planning` for
        others); the cut moves to an earlier place where it would part a tool call from its
        results. `summarize` makes a text, or a payload, of them; if it raises, nothing has
        changed. Returns None where there is nothing to summarise. Raises Conflict if a
        message was compacted or rewritten meanwhile; what was appended meanwhile is kept.
        With a `key`, compacting again under it is the same compaction.
        """
        if key is not None and (known := self.space.appended(self.uri, key)) is not None:
            return self._compacted(known, key)
        messages = self.space.active(self.uri)
        cut = compaction.boundary(messages, choose(messages))
        covered = compaction.covered_by(messages, cut.count)
        if not covered:
            return None
        made = summarize(covered)
        at = self.space.now()
        if isinstance(made, str):
            made = summary_payload(made, len(messages), len(messages) - len(covered) + 1, at)
        encoded = writing.encode(made, role=None, name=LOCAL_MESSAGE, version=1)
        if encoded.role != "user":
            # Any other would be a call or a result that providers expect to be paired.
            raise InvalidInput("a summary is a text or the payload of a user message")
        plan = Compact(self.space.repo, self.uri, self.agent, covered, encoded, at, key)
        self.space.repo.transact(plan, blobs=encoded.blobs)
        self.repair()
        return Compaction(self.message(plan.rkey), len(covered), cut.asked, cut.count)

    def _compacted(self, rkey: str, key: str) -> Compaction:
        """The compaction that was done under a key, finished if it was cut off."""
        summary = self.message(rkey)
        listed = summary.compacted_message_ids
        if listed is None:
            raise Conflict(f"key {key!r} was used to append a message")
        self.repair()
        return Compaction(self.message(rkey), len(listed), len(listed), len(listed))

    def repair(self) -> int:
        """Finishes what interrupted compactions left undone; returns how many messages it
        changed."""
        return compaction.repair(self.space.repo, self.uri, self.space.now())

    def fork(self, at: str | None = None, *, title: str | None = None) -> "Conversation":
        """A new conversation that begins as this one stood at a message (its TID; the end by
        default). Tool calls whose results are not in the fork are settled there.

        Raises NotFound.
        """
        with self.space.database.read() as connection:
            # One snapshot: what the window lost meanwhile must not be taken for an original.
            open_blob = self.space.repo.get_blob
            cut = forking.cut(
                reading.active(connection, self.uri, open_blob),
                reading.transcript(connection, self.uri, open_blob),
                at,
            )
        source = self.space.repo.get(CONVERSATION, self.rkey)
        if source is None:
            raise NotFound(f"{self.uri} has no record to fork from")
        reference = {
            "conversation": forking.strong_ref(self.uri, source.cid),
            "message": forking.strong_ref(cut.at.uri, cut.at.cid),
        }
        fork = self.space.create_conversation(
            self.agent, title=title or self.info.title, forked_from=reference, incomplete=True
        )
        for first, some in forking.batches(cut.messages):
            self.space.repo.transact(Copy(self.space.repo, fork.uri, self.agent, some, first))
        fork.settle()
        self.space.complete(fork.rkey)
        return fork

    def prompt(self) -> "Record | None":
        """The compiled prompt, as stored."""
        return self.space.prompt(self.rkey)

    def compile_prompt(
        self, memory: "MemoryDirectory | None", *, template: str | None = None
    ) -> "Record":
        """Compiles the prompt from the agent's template (or the one given) and what is
        committed in `memory`, and stores it in place of the one before. Raises as
        `prompt.compile_prompt`; then the old prompt stays."""
        from lettaspace.conversation import prompt

        return prompt.compile_prompt(self.space, self.uri, memory=memory, template=template)

    def update_memory(self, memory: "MemoryDirectory") -> "MemoryUpdate":
        """Takes over memory's commit in the middle of the conversation; the update holds the
        text to give the model."""
        from lettaspace.conversation import prompt

        return prompt.update_memory(self.space, self.uri, memory)

    def prompt_state(
        self, memory: "MemoryDirectory | None" = None, *, template: str | None = None
    ) -> "PromptState":
        """Whether the stored prompt is still that of its template and memory."""
        from lettaspace.conversation import prompt

        return prompt.prompt_state(self.space, self.uri, memory=memory, template=template)
