"""A stored conversation's small files, and agents', as Letta Code would write them.

Only what they say: putting it into a storage directory, when and in which order, is up to the
caller. `lines` has the rows.
"""

from dataclasses import dataclass
from typing import Any

from lettaspace.conversation import codec, reading
from lettaspace.conversation.formats import OpenBlob
from lettaspace.conversation.records import (
    AGENT,
    COMPILED_PROMPT,
    CONVERSATION,
    CONVERSATION_STATE,
    LOCAL_AGENT,
    LOCAL_CONVERSATION,
    NO_AGENT,
    clip,
)
from lettaspace.conversation.space import Space
from lettaspace.conversation.times import valid
from lettaspace.errors import NotFound
from lettaspace.letta.build import (
    KEY_KEY,
    MANIFEST_KEY,
    MAX_NAME,
    MAX_TITLE,
    PROMPT_FIELDS,
    SESSION_KEY,
    agent_key,
    standard_header,
    standard_manifest,
)
from lettaspace.letta.lines import is_letta, payload_id
from lettaspace.letta.source import IDS
from lettaspace.space.view import View
from lettaspace.space.writes import Value


@dataclass(slots=True)
class Files:
    """What stands beside the rows."""

    key: str
    conversation: dict[str, Any]
    manifest: dict[str, Any]
    header: dict[str, Any]


def files(space: Space, rkey: str, *, local_id: str | None = None) -> Files:
    """conversation.json, the manifest and the session header of the conversation with that
    TID. Raises NotFound.

    `local_id` is what the conversation is called in the directory, if that is not its own id.
    """
    with space.repo.snapshot() as view:
        found = files_in(space, view, rkey, local_id=local_id)
        found.conversation[IDS] = window_ids(space, view, rkey)
    return found


def files_in(space: Space, view: View, rkey: str, *, local_id: str | None = None) -> Files:
    """The same, of one snapshot and without the window."""
    record = view.get(CONVERSATION, rkey)
    if record is None:
        raise NotFound(f"no conversation {rkey}")
    stored = view.get(CONVERSATION_STATE, rkey)
    state = stored.value if stored is not None else {}
    data = letta_state(state, space.repo.get_blob)
    if "id" not in data:
        agent = letta_agent_id(view, record.value["agent"].rpartition("/")[2], space.repo.get_blob)
        data |= {"id": rkey, "agent_id": agent, "created_at": record.value["createdAt"]}
        data["summary"] = state.get("title")
    elif (title := state.get("title")) and title != clip(data.get("summary"), MAX_TITLE):
        data["summary"] = title  # somebody who is not Letta named it
    created_at = valid(data.get("created_at")) or record.value["createdAt"]
    header = data.pop(SESSION_KEY, None)
    manifest = data.pop(MANIFEST_KEY, None)
    agent_id = data.get("agent_id")
    plain_key = f"default:{agent_id}" if data["id"] == "default" else f"conversation:{data['id']}"
    key = data.pop(KEY_KEY, plain_key)
    if local_id is not None:
        data["id"] = local_id
    return Files(
        key,
        data,
        manifest or standard_manifest(created_at),
        header or standard_header(data["id"], created_at, state.get("cwd")),
    )


def window_ids(space: Space, view: View, rkey: str) -> list[str]:
    """The ids of the messages in the window, as conversation.json lists them."""
    uri = space.address.conversation(rkey)
    active = reading.active(view.connection, uri, space.repo.get_blob)
    return [
        payload_id(message)
        for message in sorted(active, key=lambda message: message.seq)
        if is_letta(message.value)
    ]


def prompt_in(space: Space, view: View, rkey: str) -> dict[str, Any] | None:
    """What system-prompt.json says; None where nothing is stored."""
    stored = view.get(CONVERSATION_STATE, rkey)
    large = stored.value.get("oversizePrompt") if stored is not None else None
    if large is not None:
        value = codec.decode(large["data"], space.repo.get_blob)
        return value if isinstance(value, dict) else None
    record = view.get(COMPILED_PROMPT, rkey)
    if record is None:
        return None
    return {key: record.value[key] for key in PROMPT_FIELDS if key in record.value}


def letta_state(state: Value, open_blob: OpenBlob) -> dict[str, Any]:
    """What a conversationState holds of Letta's own; {} where that is nothing."""
    return _data(state, LOCAL_CONVERSATION, open_blob)


def letta_agent(value: Value, open_blob: OpenBlob) -> dict[str, Any]:
    """What an agent's record holds of Letta's own, without its template; {}: nothing."""
    return _data(value, LOCAL_AGENT, open_blob)


def agent_file(space: Space, view: View, rkey: str) -> dict[str, Any] | None:
    """What the file of the agent with that record key says; None: there is no such agent."""
    record = view.get(AGENT, rkey)
    if record is None:
        return None
    value = record.value
    data = letta_agent(value, space.repo.get_blob)
    if not data:
        data = {"id": rkey, "name": value["name"], "description": value.get("description")}
        data |= {"tags": list(value.get("tags", [])), "model_settings": {}}
    if "system" in value or "system" not in data:
        data["system"] = value.get("system", "")
    # What somebody who is not Letta called it.
    if value["name"] != (clip(data.get("name"), MAX_NAME) or clip(data.get("id"), MAX_NAME)):
        data["name"] = value["name"]
    return data


def letta_agent_id(view: View, rkey: str, open_blob: OpenBlob) -> str | None:
    """Letta's id of the agent with that record key; None for the one that stands for none."""
    if rkey == NO_AGENT:
        return None
    record = view.get(AGENT, rkey)
    agent_id = letta_agent(record.value, open_blob).get("id") if record is not None else None
    return agent_id if type(agent_id) is str and agent_key(agent_id) == rkey else rkey


def _data(value: Value, name: str, open_blob: OpenBlob) -> dict[str, Any]:
    envelope = value.get("state")
    if not envelope or (envelope["format"], envelope["version"]) != (name, 1):
        return {}
    data = codec.decode(envelope["data"], open_blob)
    return data if isinstance(data, dict) else {}
