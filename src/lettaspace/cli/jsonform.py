"""The JSON form of what the library gives. The shapes are a contract: docs/cli.md."""

from typing import TYPE_CHECKING

from lettaspace.export.jsonform import Json, conversation, left_out, message, plain, present

if TYPE_CHECKING:
    from lettaspace.conversation.overview import AgentInfo
    from lettaspace.conversation.space import Hit
    from lettaspace.space.writes import Record

__all__ = ["agent", "conversation", "hit", "left_out", "message", "record", "verdict"]


def agent(item: "AgentInfo") -> Json:
    form = {
        "rkey": item.rkey,
        "uri": item.uri,
        "name": item.name,
        "description": item.description,
        "createdAt": item.created_at,
        "updatedAt": item.updated_at,
        "conversations": item.conversations,
        "messages": item.messages,
    }
    more = {"hidden": item.hidden, "tags": list(item.tags), "unrecorded": not item.recorded}
    return form | present(more)


def hit(item: "Hit") -> Json:
    form = {
        "conversation": item.conversation,
        "rkey": item.message.rkey,
        "uri": item.message.uri,
        "seq": item.message.seq,
        "role": item.message.role,
        "status": item.message.status,
        "snippet": item.snippet,
    }
    return form if item.copy_of is None else {**form, "copyOf": item.copy_of}


def record(uri: str, item: "Record") -> Json:
    """A record as stored, and what its lexicon says of it."""
    return {
        "uri": uri,
        "cid": str(item.cid),
        "value": plain(item.value),
        "lexicon": verdict(item),
    }


def verdict(item: "Record") -> Json:
    """Whether a record satisfies its lexicon: `valid` is null where there is none here."""
    from lettaspace.atproto import lexicon
    from lettaspace.conversation.space import validate
    from lettaspace.errors import InvalidRecord

    if not lexicon.shipped().has(item.collection):
        return {"id": item.collection, "valid": None}
    try:
        validate(item.collection, item.rkey, item.value)
    except InvalidRecord as error:
        return {"id": item.collection, "valid": False, "problem": str(error)}
    return {"id": item.collection, "valid": True}
