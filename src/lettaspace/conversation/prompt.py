"""Compiled prompts: make, check and update the one that stands at a conversation's key.

from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.prompt import compile_prompt, prompt_state, update_memory

memory = MemoryDirectory(path)
if prompt_state(space, talk.uri, memory=memory).status != "fresh":
    compile_prompt(space, talk.uri, memory=memory)

The record is what Letta Code 0.34.12 would write for the same template, commit and time. A
conversation is given by its URI or TID.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from lettaspace.conversation.jsontext import well_formed
from lettaspace.conversation.memory import MemoryDirectory, MemoryState, WorkTree
from lettaspace.conversation.promptparts import (
    committed,
    core_memory,
    has_v2,
    is_markdown,
    record_of,
    shown_messages,
    stored_prompt,
    template_hash,
    template_of,
)
from lettaspace.conversation.records import COMPILED_PROMPT, CONVERSATION, rkey_of
from lettaspace.conversation.render import (
    letta_prompt,
    render_memory_update,
    render_prompt,
    without_metadata,
)
from lettaspace.conversation.times import after, text
from lettaspace.errors import InvalidInput, InvalidRecord, LettaspaceError, NotFound
from lettaspace.space.writes import Create, Reader, Record, Update, Value, Write

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

MAX_BYTES = 200_000
"""The most bytes of UTF-8 in `content` and in `coreMemory` (lexicon)."""


class PromptStatus(StrEnum):
    """Whether a stored prompt is what compiling now would give."""

    MISSING = "missing"
    FRESH = "fresh"
    TEMPLATE_CHANGED = "template-changed"
    MEMORY_CHANGED = "memory-changed"
    BOTH = "both"
    UNKNOWN = "unknown"
    """It cannot be told; `PromptState.reason` says why."""


@dataclass(frozen=True, slots=True)
class PromptState:
    """How a stored prompt stands to its template and its memory. Nothing was written."""

    status: PromptStatus
    reason: str = ""
    """Why the status is unknown: one line."""
    template_changed: bool | None = None
    """None: there is no template to compare with."""
    memory_changed: bool | None = None
    """Whether the committed memory now renders to another text. None: it cannot be told, or
    no memory was given and the status judges the template alone."""
    revision_moved: bool | None = None
    """Whether memory's commit is another than the stored one. None as above."""
    updated: bool = False
    """Memory was updated since: `coreMemory` no longer stands in `content`."""
    oversize: bool = False
    """The prompt was imported and is too large for its record; the state sidecar has it."""
    uncommitted: tuple[str, ...] = ()
    """Paths in the work tree that no commit has yet. They make nothing stale."""
    conflicts: tuple[str, ...] = ()
    """Paths with an unresolved merge: the uncommitted ones, and those committed so."""
    memory: MemoryState | None = None

    @property
    def text_same(self) -> bool:
        """The revision moved, but the text of core memory is the same."""
        return self.revision_moved is True and self.memory_changed is False


@dataclass(frozen=True, slots=True)
class MemoryUpdate:
    """What came of `update_memory`."""

    record: Record
    """The prompt as it is stored now."""
    text: str | None
    """What to tell the model, once, as a system message behind the last message; None: the
    stored revision is memory's already, and nothing was written."""
    text_same: bool
    """The text of core memory did not change, whatever its revision."""


def compile_prompt(
    space: "Space",
    conversation: str,
    *,
    memory: MemoryDirectory | None,
    template: str | None = None,
    now: datetime | None = None,
    message_count: int | None = None,
) -> Record:
    """Compiles a conversation's prompt and stores it in place of the one before.

    The template is the agent's own unless given; `memory` None is for agents that have none.
    `message_count` stands in layout v1 only; by default it is counted as Letta does.

    Raises NotFound (conversation, agent, template, memory), InvalidInput (a time without zone),
    InvalidRecord (too large, or half a character in the template), and what reading memory
    raises. Then the old prompt stays.
    """
    rkey, make = _compiler(space, conversation, memory, template, now, message_count)
    return _store(space, rkey, make)


def preview_prompt(
    space: "Space",
    conversation: str,
    *,
    memory: MemoryDirectory | None,
    template: str | None = None,
    now: datetime | None = None,
) -> Value:
    """The record that `compile_prompt` would store. Writes nothing, and raises the same."""
    rkey, make = _compiler(space, conversation, memory, template, now, None)
    with space.repo.snapshot() as reader:
        value = make(reader)
    _check_size(rkey, value)
    return value


def _compiler(
    space: "Space",
    conversation: str,
    memory: MemoryDirectory | None,
    template: str | None,
    now: datetime | None,
    message_count: int | None,
) -> tuple[str, Callable[[Reader], Value]]:
    """The key of a conversation, and what makes its prompt of the stored state."""
    rkey, uri = _names(space, conversation)
    at = _time(space, now)
    snapshot = committed(memory) if memory is not None else None
    if message_count is None and not has_v2(snapshot):
        message_count = shown_messages(space.window(uri).messages)

    def make(reader: Reader) -> Value:
        talk = record_of(reader, CONVERSATION, rkey)
        agent = str(talk.value["agent"])
        raw = template if template is not None else template_of(reader, agent)
        if not well_formed(raw):
            raise InvalidRecord(f"the template of {agent} holds half a character")
        core = core_memory(reader, snapshot, talk, at, message_count or 0)
        value: Value = {
            "$type": COMPILED_PROMPT,
            "agent": agent,
            "conversation": uri,
            "content": render_prompt(raw, core),
            "coreMemory": core,
            "compiledAt": text(at),
            "rawSystemHash": template_hash(raw),
        }
        if snapshot is not None:
            value["memfsRevision"] = snapshot.revision
        return value

    return rkey, make


def update_memory(
    space: "Space", conversation: str, memory: MemoryDirectory, *, now: datetime | None = None
) -> MemoryUpdate:
    """Takes over memory's commit in the middle of a conversation, so that the model can be told.

    As Letta does, `coreMemory`, `memfsRevision` and their time (`compiledAt`) are replaced, and
    `content` stays, for the conversation goes on with it: the record then reports itself as
    updated, until it is compiled anew. Raises as `compile_prompt`, NotFound also where no prompt
    was compiled yet.
    """
    rkey, uri = _names(space, conversation)
    at = _time(space, now)
    snapshot = committed(memory)
    count = 0 if has_v2(snapshot) else shown_messages(space.window(uri).messages)
    before: list[Value] = []

    def make(reader: Reader) -> Value:
        old = record_of(reader, COMPILED_PROMPT, rkey).value
        before[:] = [old]
        if old.get("memfsRevision") == snapshot.revision:
            return old
        talk = record_of(reader, CONVERSATION, rkey)
        core = core_memory(reader, snapshot, talk, at, count)
        new = {"coreMemory": core, "memfsRevision": snapshot.revision, "compiledAt": text(at)}
        return {**old, **new}

    record = _store(space, rkey, make)
    (old,) = before
    if record.value is old:
        return MemoryUpdate(record, None, True)
    core = str(record.value["coreMemory"])
    told = render_memory_update(core, snapshot.revision)
    return MemoryUpdate(record, told, _is_same(core, str(old["coreMemory"])))


def prompt_state(
    space: "Space",
    conversation: str,
    *,
    template: str | None = None,
    memory: MemoryDirectory | None = None,
) -> PromptState:
    """Compares a stored prompt with its template (the agent's unless given) and with what is
    committed in `memory`. Writes nothing and compiles nothing.

    Memory that cannot be read makes the status unknown. Raises NotFound for a conversation
    that is not there.
    """
    rkey, _ = _names(space, conversation)
    with space.repo.snapshot() as reader:
        talk = record_of(reader, CONVERSATION, rkey)
        prompt, oversize = stored_prompt(reader, rkey)
        raw = template
        if raw is None:
            try:
                raw = template_of(reader, str(talk.value["agent"]))
            except NotFound:
                raw = None
    answer = memory.state() if memory is not None else None
    readable = answer is not None and answer.revision is not None
    tree, harm = WorkTree((), ()), ""
    if memory is not None and readable:
        try:
            tree = memory.work_tree()
        except LettaspaceError as error:
            harm = str(error)
    if prompt is None:
        return PromptState(
            PromptStatus.MISSING,
            uncommitted=tree.uncommitted,
            conflicts=tree.conflicts,
            memory=answer,
        )
    content, core = str(prompt.get("content", "")), str(prompt.get("coreMemory", ""))
    changed = template_hash(raw) != prompt.get("rawSystemHash") if raw is not None else None
    # Letta's own way of putting `$$` into a template is no update.
    literal = core in content or (raw is not None and letta_prompt(raw, core) == content)
    moved, differs, committed, reason = _memory_moved(space, rkey, prompt, memory, answer)
    reason = reason or harm
    if changed is None:
        reason = "the agent has no template to compare with"
    return PromptState(
        _status(changed, differs, unknown=bool(reason)),
        reason,
        template_changed=changed,
        memory_changed=differs,
        revision_moved=moved,
        updated=not literal,
        oversize=oversize,
        uncommitted=tree.uncommitted,
        conflicts=tuple(dict.fromkeys((*tree.conflicts, *committed))),
        memory=answer,
    )


def _memory_moved(
    space: "Space",
    rkey: str,
    prompt: Value,
    memory: MemoryDirectory | None,
    answer: MemoryState | None,
) -> tuple[bool | None, bool | None, list[str], str]:
    """Whether the revision moved, whether the text did, what was committed in conflict, and why
    that cannot be told."""
    known = prompt.get("memfsRevision")
    if known is None:
        return None, None, [], "the prompt has no revision stored"
    if memory is None or answer is None:
        return None, None, [], ""
    if answer.revision is None:
        return None, None, [], answer.message
    try:
        snapshot = memory.read(answer.revision, wanted=is_markdown)
    except LettaspaceError as error:
        return answer.revision != known, None, [], str(error)
    if answer.revision == known:
        return False, False, snapshot.conflicts, ""
    with space.repo.snapshot() as reader:
        talk = record_of(reader, CONVERSATION, rkey)
        core = core_memory(reader, snapshot, talk, datetime.fromtimestamp(0, UTC), 0)
    return True, not _is_same(core, str(prompt.get("coreMemory"))), snapshot.conflicts, ""


def _status(template: bool | None, memory: bool | None, *, unknown: bool) -> PromptStatus:
    if unknown:
        return PromptStatus.UNKNOWN
    if template:
        return PromptStatus.BOTH if memory else PromptStatus.TEMPLATE_CHANGED
    return PromptStatus.MEMORY_CHANGED if memory else PromptStatus.FRESH


def _is_same(core: str, other: str) -> bool:
    # Layout v1's metadata block is of another time whenever it is rendered.
    return core == other or without_metadata(core) == without_metadata(other)


def _store(space: "Space", rkey: str, make: Callable[[Reader], Value]) -> Record:
    """Puts what `make` makes of the stored state in the prompt's place, unless it is there."""
    made: list[Value] = []
    old: list[Record] = []

    def plan(reader: Reader) -> list[Write]:
        value = make(reader)
        _check_size(rkey, value)
        made[:] = [value]
        found = reader.get(COMPILED_PROMPT, rkey)
        if found is None:
            return [Create(COMPILED_PROMPT, rkey, value)]
        old[:] = [found]
        if found.value == value:
            return []
        value["compiledAt"] = after(value["compiledAt"], found.value.get("compiledAt"))
        return [Update(COMPILED_PROMPT, rkey, value, found.cid)]

    written = space.repo.transact(plan)
    cid = written[0].cid if written else old[0].cid
    assert cid is not None  # noqa: S101, only a delete has none
    return Record(COMPILED_PROMPT, rkey, cid, made[0])


def _check_size(rkey: str, value: Value) -> None:
    for field in ("content", "coreMemory"):
        size = len(value[field].encode())
        if size > MAX_BYTES:
            raise InvalidRecord(
                f"the prompt of {rkey} is too large: {field} has {size} bytes of {MAX_BYTES}; "
                "the one stored before stays"
            )


def _names(space: "Space", conversation: str) -> tuple[str, str]:
    rkey = rkey_of(conversation) if conversation.startswith("at://") else conversation
    return rkey, space.address.conversation(rkey)


def _time(space: "Space", now: datetime | None) -> datetime:
    now = now if now is not None else datetime.fromisoformat(space.now())
    if now.tzinfo is None:
        raise InvalidInput("the time of compilation has no timezone")
    return now.astimezone(UTC)
