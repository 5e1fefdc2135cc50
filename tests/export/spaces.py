"""Spaces with something of everything that an archive has to hold."""

from __future__ import annotations

from base64 import b64encode
from hashlib import shake_128
from typing import Any

from lettaspace import Space
from lettaspace.atproto.cid import CID
from lettaspace.conversation.handle import Conversation
from lettaspace.conversation.leaves import BLOB_BYTES, make_leaf
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    MEMORY,
    envelope,
)
from lettaspace.space.writes import Create
from tests.conformance.kit import result, says, user

TIME = "2024-03-05T10:00:00.000Z"
FOREIGN = "com.example.note"

Records = dict[tuple[str, str], CID]


def image(size: int, seed: int = 0) -> dict[str, Any]:
    data = shake_128(str(seed).encode()).digest(size)
    return {"type": "image", "data": b64encode(data).decode(), "mimeType": "image/png"}


def talk(space: Space, agent: str, title: str) -> Conversation:
    """A conversation with a summary, a call, an image, and a compiled prompt."""
    made = space.create_conversation(space.address.agent(agent), title=title)
    for number in range(4):
        made.append(user(f"{title} {number}"))
    made.append(says("looking", "c1"))
    made.append(result("found", "c1"))
    made.append({"role": "user", "content": [{"type": "text", "text": "see"}, image(5000)]})
    made.compact(lambda _covered: "SUM", lambda _window: 3)
    prompt = {
        "agent": made.agent,
        "conversation": made.uri,
        "content": "You are Otter.",
        "coreMemory": "Otter",
        "rawSystemHash": "x",
        "compiledAt": TIME,
    }
    space.repo.apply_writes([Create(COMPILED_PROMPT, made.rkey, prompt)])
    return made


def fill(space: Space, agent: str = "agent-otter") -> Conversation:
    """Agents, memory, conversations, a fork and the fork of it, and what we know no lexicon of.

    Returns the last fork.
    """
    # What looks like a reference but stands in a payload or a text is not to be touched.
    uri = space.address.conversation("3lalalalala22")
    state = envelope("letta.localAgentRecord", 1, {"conversation": uri, "half": uri[:40]})
    bundle, blobs = make_leaf(BLOB_BYTES, b"bundle" * 500, "application/octet-stream")
    memory = {
        "agent": space.address.agent(agent),
        "head": "0" * 40,
        "branch": "main",
        "updatedAt": TIME,
        "bundles": [{"head": "0" * 40, "content": bundle}],
    }
    space.repo.apply_writes(
        [
            Create(AGENT, agent, {"name": "Otter", "updatedAt": TIME, "state": state}),
            Create(MEMORY, agent, memory),
            Create(FOREIGN, "n1", {"conversation": uri, "n": 1}),
        ],
        blobs=blobs,
    )
    made = talk(space, agent, "jars")
    made.append(user(f"look at {made.uri}"))
    other = talk(space, agent, "tiles")
    fork = other.fork(other.window().messages[-1].rkey, title="fork")
    fork.append(user("only in the fork"))
    return fork.fork(title="fork of the fork")


def records(space: Space) -> Records:
    """The CID of every record."""
    last = {(op.collection, op.rkey): op.cid for op in space.repo.ops()}
    return {key: cid for key, cid in last.items() if cid is not None}


def problems(space: Space) -> list[str]:
    return [str(problem) for problem in space.verify()]
