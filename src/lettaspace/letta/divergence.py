"""The mark on a conversation that went on in the space and, otherwise, in Letta's files.

It stands in the conversation's state, beside what was found damaged, so that whoever lists
conversations sees it. Everything else in the state is left as it was; so are the marks that say
from what the conversation was parted, which are of the same kind.
"""

from collections.abc import Sequence

from lettaspace.conversation.records import CONVERSATION, CONVERSATION_STATE
from lettaspace.letta.build import MAX_DAMAGE
from lettaspace.letta.damage import DIVERGED
from lettaspace.letta.writer import Writer
from lettaspace.space.writes import Create, Reader, Update, Value, Write

_OURS = "only in these files"


def mark(writer: Writer, rkey: str, theirs: int, ours: int) -> str:
    """Says of a stored conversation that it diverged, by how many messages; returns the note."""
    note = f"{theirs} messages only in the space, {ours} {_OURS}"
    _replace(writer, rkey, [{"kind": DIVERGED, "note": note}])
    return note


def clear(writer: Writer, rkey: str) -> None:
    """Takes the mark off, if there is one."""
    _replace(writer, rkey, [])


def partings(state: Value) -> list[Value]:
    """The entries of a conversationState's damage that tell what it was parted from."""
    return [
        each
        for each in state.get("damage", [])
        if each["kind"] == DIVERGED and not each.get("note", "").endswith(_OURS)
    ]


def _replace(writer: Writer, rkey: str, marks: list[Value]) -> None:
    def plan(view: Reader) -> Sequence[Write]:
        stored = view.get(CONVERSATION_STATE, rkey)
        if stored is None:
            conversation = view.get(CONVERSATION, rkey)
            if conversation is None or not marks:
                return []
            # As old as can be: any state that an import brings takes its place.
            uri = writer.space.address.conversation(rkey)
            value = {"conversation": uri, "updatedAt": conversation.value["createdAt"]}
            return [Create(CONVERSATION_STATE, rkey, {**value, "damage": marks})]
        old = stored.value.get("damage", [])
        kept = partings(stored.value)
        new = [each for each in old if each["kind"] != DIVERGED or each in kept]
        new = (marks + new)[:MAX_DAMAGE]
        if new == old:
            return []
        value = {key: each for key, each in stored.value.items() if key != "damage"}
        return [Update(CONVERSATION_STATE, rkey, {**value, "damage": new} if new else value)]

    if not writer.dry and plan(writer.space.repo):
        writer.space.repo.transact(plan)
