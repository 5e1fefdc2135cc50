"""The JSON form of what the library gives. The shapes are a contract: docs/cli.md."""

from typing import TYPE_CHECKING, Any

from lettaspace.errors import Damaged, InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.message import Message
    from lettaspace.conversation.overview import AgentInfo, ConversationInfo
    from lettaspace.conversation.space import Hit
    from lettaspace.space.writes import Record

Json = dict[str, Any]


def conversation(item: "ConversationInfo") -> Json:
    """A conversation; what is not the case is left out after `letta`."""
    form = {
        "rkey": item.rkey,
        "uri": item.uri,
        "agent": item.agent or None,
        "title": item.title,
        "createdAt": item.created_at,
        "updatedAt": item.updated_at,
        "messages": item.messages,
        "active": item.active,
        "letta": dict(item.letta),
    }
    more = {
        "archived": item.archived,
        "hidden": item.hidden,
        "tags": list(item.tags),
        "cwd": item.cwd,
        "incomplete": item.incomplete,
        "damage": [dict(each) for each in item.damage],
        "forkedFrom": _plain(dict(item.forked_from)) if item.forked_from else None,
        "unrecorded": not item.recorded,
    }
    return form | _present(more)


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
    return form | _present(more)


def message(item: "Message") -> Json:
    """A message with its payload decoded; as stored, and said so, where that is impossible."""
    form: Json = {
        "rkey": item.rkey,
        "uri": item.uri,
        "cid": str(item.cid),
        "seq": item.seq,
        "role": item.role,
        "status": item.status,
        "createdAt": item.created_at,
    }
    if item.updated_at is not None:
        form["updatedAt"] = item.updated_at
    if item.compacted_message_ids is not None:
        form["compactedMessageIds"] = item.compacted_message_ids
    if item.flags:
        form["flags"] = list(item.flags)
    envelope = {"format": item.format, "version": item.version}
    try:
        form["message"] = envelope | {"data": item.payload()}
    except (Damaged, InvalidInput, NotFound) as error:
        form["unreadable"] = str(error)
        form["message"] = envelope | {"data": _plain(item.data)}
    return form


def left_out(item: "Message") -> Json:
    """A message that stands in no window, and why."""
    return {"rkey": item.rkey, "seq": item.seq, "reason": ", ".join(item.flags)}


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
        "value": _plain(item.value),
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


def _plain(value: Any) -> Any:
    """A value of the data model in the protocol's JSON form."""
    from lettaspace.atproto.data import to_json

    return to_json(value)


def _present(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value}
