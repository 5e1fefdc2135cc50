"""The JSON form of what the library gives. The shapes are a contract: docs/cli.md."""

from typing import TYPE_CHECKING

from lettaspace.export.jsonform import Json, conversation, left_out, message, plain, present

if TYPE_CHECKING:
    from lettaspace.conversation.overview import AgentInfo
    from lettaspace.conversation.projects import Project
    from lettaspace.conversation.space import Hit
    from lettaspace.space.writes import Record

__all__ = ["agent", "conversation", "hit", "left_out", "message", "project", "record"]


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


def project(item: "Project") -> Json:
    held = [conversation(each) for each in item.conversations]
    return {"directory": item.directory, "conversations": held}


def record(uri: str, item: "Record") -> Json:
    """A record as stored, and what its lexicon says of it."""
    from lettaspace.conversation.space import verdict

    return {
        "uri": uri,
        "cid": str(item.cid),
        "value": plain(item.value),
        "lexicon": verdict(item),
    }
