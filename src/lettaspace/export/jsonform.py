"""The JSON form of conversations, messages and prompts. The shapes are a contract: docs/cli.md.

With a redaction the forms are for somebody else: secrets are replaced, and no hash is in them
of anything in which something may have been, since who has all the rest could try out what
makes the hash come true.
"""

from typing import TYPE_CHECKING, Any

from lettaspace.errors import Damaged, InvalidInput, NotFound

if TYPE_CHECKING:
    from lettaspace.conversation.message import Message
    from lettaspace.conversation.overview import ConversationInfo
    from lettaspace.conversation.redaction import Redacting
    from lettaspace.conversation.space import Space

Json = dict[str, Any]

PROMPT_FIELDS = (
    "agent",
    "content",
    "coreMemory",
    "rawSystemHash",
    "memfsRevision",
    "compiledAt",
)


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
        "forkedFrom": plain(dict(item.forked_from)) if item.forked_from else None,
        "unrecorded": not item.recorded,
    }
    return form | present(more)


def message(item: "Message", redaction: "Redacting | None" = None) -> Json:
    """A message with its payload decoded; as stored, and said so, where that is impossible."""
    form: Json = {"rkey": item.rkey, "uri": item.uri}
    if redaction is None:
        form["cid"] = str(item.cid)
    form |= {
        "seq": item.seq,
        "role": item.role if redaction is None else redaction.text(item.role),
        "status": item.status,
        "createdAt": item.created_at,
    }
    if item.updated_at is not None:
        form["updatedAt"] = item.updated_at
    if item.compacted_message_ids is not None:
        form["compactedMessageIds"] = item.compacted_message_ids
    if item.flags:
        form["flags"] = list(item.flags)
    try:
        data = item.payload()
    except (Damaged, InvalidInput, NotFound) as error:
        form["unreadable"] = reason(error, redaction)
        data = stored(item, redaction)
    else:
        data = data if redaction is None else redaction.json(data)
    name = item.format if redaction is None else redaction.text(item.format)
    form["message"] = {"format": name, "version": item.version, "data": data}
    return form


def reason(error: Exception, redaction: "Redacting | None") -> str:
    """Why a payload cannot be read. The text of an error may name a blob by its hash."""
    return str(error) if redaction is None else "a part of it is lost or damaged"


def stored(item: "Message", redaction: "Redacting | None" = None) -> Any:
    """A payload as stored, for one that cannot be decoded.

    With a redaction, escapes are opened, and sealed parts have no key: whoever has that can
    open the part wherever its blob is to be had.
    """
    data = plain(item.data)
    return data if redaction is None else redaction.json(_without_keys(data))


def left_out(item: "Message") -> Json:
    """A message that stands in no window, and why."""
    return {"rkey": item.rkey, "seq": item.seq, "reason": ", ".join(item.flags)}


def prompt(space: "Space", rkey: str, conversation: str) -> Json | None:
    """The compiled prompt of a conversation (its TID and URI), or None."""
    record = space.prompt(rkey)
    if record is not None:
        values, oversize = record.value, False
        where = {"rkey": rkey, "uri": space.address.uri(record.collection, rkey)}
        where["cid"] = str(record.cid)
    else:
        oversized = _oversize(space, rkey)
        if oversized is None:
            return None
        values, oversize, where = oversized, True, {"rkey": rkey}
    form: Json = where | {"conversation": conversation}
    form |= {name: values[name] for name in PROMPT_FIELDS if values.get(name) is not None}
    if oversize:
        form["oversize"] = True
    return form


def plain(value: Any) -> Any:
    """A value of the data model in the protocol's JSON form."""
    from lettaspace.atproto.data import to_json

    return to_json(value)


def present(fields: Json) -> Json:
    """The fields that say something."""
    return {key: value for key, value in fields.items() if value}


def _oversize(space: "Space", rkey: str) -> Json | None:
    """A prompt too large for a record of its own stands in the conversation's state."""
    from lettaspace.conversation import codec
    from lettaspace.conversation.records import CONVERSATION_STATE

    state = space.repo.get(CONVERSATION_STATE, rkey)
    envelope = state.value.get("oversizePrompt") if state is not None else None
    if envelope is None:
        return None
    values = codec.decode(envelope["data"], space.repo.get_blob)
    return values if isinstance(values, dict) else None


def _without_keys(value: Any) -> Any:
    from lettaspace.conversation.jsontext import JSON_ESCAPE, loads
    from lettaspace.conversation.leaves import LEAF_TYPES

    if isinstance(value, list):
        return [_without_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("$type")
    if kind == JSON_ESCAPE and isinstance(value.get("json"), str):
        try:
            return loads(value["json"])
        except InvalidInput:
            return value
    if isinstance(kind, str) and kind in LEAF_TYPES:
        return {key: item for key, item in value.items() if key not in ("key", "blobs")}
    return {key: _without_keys(item) for key, item in value.items()}
