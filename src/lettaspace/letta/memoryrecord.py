"""The `memory` record of an agent, read and made; docs/records.md has its fields."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from lettaspace.atproto.cid import CID
from lettaspace.conversation.leaves import BLOB_BYTES, make_leaf, open_leaf
from lettaspace.conversation.memory import REVISION
from lettaspace.conversation.records import MEMORY
from lettaspace.errors import Damaged, NotFound
from lettaspace.letta.bundles import MEDIA_TYPE, Bundle
from lettaspace.space.writes import Record, Value

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


@dataclass(frozen=True, slots=True)
class Part:
    """A bundle as the record has it."""

    head: str
    value: Value
    size: int
    """Bytes of the bundle."""

    @classmethod
    def sealed(cls, bundle: Bundle) -> "tuple[Part, dict[CID, bytes]]":
        """The part for a bundle, and its blobs."""
        leaf, blobs = make_leaf(BLOB_BYTES, bundle.data, MEDIA_TYPE)
        value: Value = {"head": bundle.head, "content": leaf}
        if bundle.prerequisites:
            value |= {
                "base": bundle.prerequisites[0],
                "prerequisites": list(bundle.prerequisites),
            }
        return cls(bundle.head, value, len(bundle.data)), blobs

    def open(self, get_blob: Callable[[CID], bytes]) -> bytes:
        """The bundle. Raises Damaged, and what `get_blob` raises."""
        return open_leaf(self.value["content"], get_blob)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the record says."""

    agent: str
    branch: str
    head: str
    others: tuple[str, ...]
    """The other heads, sorted."""
    parts: tuple[Part, ...]
    updated_at: str
    cid: CID | None
    included: tuple[str, ...] = ()
    """Commits that earlier versions named, and that are in the history of the heads."""

    @property
    def size(self) -> int:
        """Bytes of all bundles."""
        return sum(part.size for part in self.parts)

    def value(self, agent: str) -> Value:
        """The record; `agent` is the agent's URI."""
        value: Value = {
            "agent": agent,
            "head": self.head,
            "branch": self.branch,
            "updatedAt": self.updated_at,
            "bundles": [part.value for part in self.parts],
        }
        if self.others:
            value["otherHeads"] = list(self.others)
        if self.included:
            value["included"] = list(self.included)
        return value


@overload
def stored_memory(space: "Space", agent: str, *, required: Literal[True]) -> Stored: ...
@overload
def stored_memory(space: "Space", agent: str) -> Stored | None: ...
def stored_memory(space: "Space", agent: str, *, required: bool = False) -> Stored | None:
    """The memory of an agent, by its record key. Raises Damaged for a record that is no memory,
    and NotFound where one is `required` and there is none."""
    record = space.repo.get(MEMORY, agent)
    if record is None:
        if required:
            raise NotFound(f"the space has no memory of {agent}")
        return None
    return _stored(record)


def _stored(record: Record) -> Stored:
    value = record.value
    heads = [value["head"], *value.get("otherHeads", ())]
    parts = [_part(each) for each in value["bundles"]]
    if not all(REVISION.fullmatch(each) for each in (*heads, *(part.head for part in parts))):
        raise Damaged(f"the memory of {record.rkey} names what is no commit")
    return Stored(
        record.rkey,
        value["branch"],
        heads[0],
        tuple(sorted(set(heads[1:]) - {heads[0]})),
        tuple(parts),
        value["updatedAt"],
        record.cid,
        tuple(value.get("included", ())),
    )


def _part(value: Any) -> Part:
    return Part(value["head"], value, value["content"]["size"])
