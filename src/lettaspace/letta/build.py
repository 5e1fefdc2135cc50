"""The records that a conversation of Letta's becomes."""

from typing import Any

from lettaspace.atproto.cid import CID
from lettaspace.atproto.syntax import is_record_key
from lettaspace.conversation import codec
from lettaspace.conversation.derive import agent_rkey
from lettaspace.conversation.jsontext import well_formed
from lettaspace.conversation.records import (
    COMPACTED,
    LOCAL_AGENT,
    LOCAL_CONVERSATION,
    LOCAL_MESSAGE,
    NO_AGENT,
    Address,
    clip,
    envelope,
)
from lettaspace.conversation.shapes import SHAPES, Known, ListOf
from lettaspace.conversation.times import valid
from lettaspace.conversation.unstored import without_authentication
from lettaspace.letta.damage import OVERSIZE_PROMPT, Damage, Findings
from lettaspace.letta.identity import Identity
from lettaspace.letta.plan import OWN_TIME, Plan, Status
from lettaspace.letta.scan import Entry
from lettaspace.letta.source import Source
from lettaspace.space.writes import Value

LEGACY_MESSAGE = "letta.legacyMessage"
COMPILED_PROMPT = "letta.compiledPrompt"

SESSION_KEY = "lettaspace.session"
MANIFEST_KEY = "lettaspace.manifest"
KEY_KEY = "lettaspace.key"
"""Keys added to conversation.json's own, for what cannot be told from the rest."""

MAX_PROMPT = 200_000
MAX_HASH = 128
MAX_SYSTEM = 100_000
MAX_NAME = 4096
MAX_TITLE = 8192
MAX_DAMAGE = 100

_LEGACY_SHAPE = Known({"parts": ListOf(Known())})
_MESSAGE_SHAPE = SHAPES[LOCAL_MESSAGE, 1]

Blobs = dict[CID, bytes]


def agent_key(agent_id: str) -> str:
    """The record key of an agent; "" is the one that stands for none."""
    if not agent_id:
        return NO_AGENT
    if is_record_key(agent_id) and agent_id != NO_AGENT:
        return agent_id
    return agent_rkey(agent_id)


def agent_record(agent_id: str, data: dict[str, Any], blobs: Blobs) -> Value:
    """The record of an agent's file."""
    value: Value = {"name": clip(data.get("name"), MAX_NAME) or clip(agent_id, MAX_NAME)}
    description = clip(data.get("description"), 20_000)
    if description:
        value["description"] = description
    if data.get("hidden") is True:
        value["hidden"] = True
    if tags := _tags(data.get("tags")):
        value["tags"] = tags
    system = data.get("system")
    if type(system) is str and well_formed(system) and len(system.encode()) <= MAX_SYSTEM:
        value["system"] = system
        data = {key: item for key, item in data.items() if key != "system"}
    value["state"] = _seal(LOCAL_AGENT, data, blobs)
    return value


def no_agent_record() -> Value:
    """The agent that conversations without one hang on."""
    return {"name": "No agent"}


def conversation_record(source: Source, address: Address) -> Value:
    """The stable record of a conversation."""
    return {"agent": address.agent(agent_key(source.agent_id)), "createdAt": source.created_at}


def state_record(
    source: Source,
    conversation: str,
    header: dict[str, Any] | None,
    findings: Findings,
    blobs: Blobs,
) -> Value:
    """The sidecar with all that changes: `conversation` is the URI, `header` the session row."""
    data = source.value
    updated = valid(data.get("updated_at"))
    last = valid(data.get("last_message_at"))
    value: Value = {"conversation": conversation, "updatedAt": updated or last or source.created_at}
    if title := clip(data.get("summary"), MAX_TITLE):
        value["title"] = title
    if data.get("archived") is True:
        value["archived"] = True
    if archived_at := valid(data.get("archived_at")):
        value["archivedAt"] = archived_at
    if data.get("hidden") is True:
        value["hidden"] = True
    if tags := _tags(data.get("tags")):
        value["tags"] = tags
    if last:
        value["lastMessageAt"] = last
    if header is not None and (cwd := clip(header.get("cwd"), 8192)):
        value["cwd"] = cwd
    if source.prompt is not None and not _is_plain_prompt(source.prompt):
        findings.add(OVERSIZE_PROMPT, None, "kept in the conversation's state")
        value["oversizePrompt"] = _seal(COMPILED_PROMPT, source.prompt, blobs)
    if findings.losses:
        value["incomplete"] = True
    if findings.entries:
        value["damage"] = _damage(findings)
    value["state"] = _seal(LOCAL_CONVERSATION, _state_data(source, header), blobs)
    return value


def prompt_record(source: Source, conversation: str, address: Address) -> Value | None:
    """The compiled prompt, if there is one that fits its record."""
    prompt = source.prompt
    if prompt is None or not _is_plain_prompt(prompt):
        return None
    return {
        "agent": address.agent(agent_key(source.agent_id)),
        "conversation": conversation,
        **prompt,
    }


class MessageBuilder:
    """Makes the message records of one conversation."""

    def __init__(self, plan: Plan, conversation: str, agent: str) -> None:
        self.plan = plan
        self.conversation = conversation
        self.agent = agent

    def record(
        self, entry: int, identity: Identity, message: dict[str, Any], blobs: Blobs
    ) -> Value:
        """The record of a message, its payload given as `jsontext.loads` gives it."""
        plan = self.plan
        kind = plan.scan.kinds[entry]
        legacy = kind == Entry.LEGACY
        kept = without_authentication(message)
        encoded = codec.encode(kept, _LEGACY_SHAPE if legacy else _MESSAGE_SHAPE)
        if encoded.blobs:
            blobs.update(encoded.blobs)
        value: Value = {
            "conversation": self.conversation,
            "agent": self.agent,
            "role": identity.role,
            "seq": plan.seqs[entry],
            "message": {
                "format": LEGACY_MESSAGE if legacy else LOCAL_MESSAGE,
                "version": 1,
                "data": encoded.value,
            },
            "createdAt": identity.created_at,
        }
        if plan.status[entry] == Status.COMPACTED:
            value["status"] = COMPACTED
        if plan.updated[entry] == OWN_TIME:
            metadata = message.get("metadata")
            own = valid(metadata.get("updated_at")) if type(metadata) is dict else None
            value["updatedAt"] = own or identity.created_at
        elif (updated := plan.updated_at(entry)) is not None:
            value["updatedAt"] = updated
        if kind == Entry.SUMMARY:
            value["compactedMessageIds"] = [plan.scan.tid(each) for each in plan.covers(entry)]
        return value


def standard_manifest(created_at: str) -> dict[str, Any]:
    """The manifest Letta writes beside rows of the present kind."""
    return {
        "schema_version": 2,
        "message_format": "pi-session-entry-jsonl",
        "provider_stack": "pi-ai",
        "created_at": created_at,
    }


def standard_header(letta_id: Any, created_at: str, cwd: Any) -> dict[str, Any]:
    """The session row Letta writes first."""
    return {"type": "session", "version": 3, "id": letta_id, "timestamp": created_at, "cwd": cwd}


def _state_data(source: Source, header: dict[str, Any] | None) -> dict[str, Any]:
    data = dict(source.value)
    letta_id = data.get("id")
    cwd = header.get("cwd") if header is not None else None
    if header is not None and header != standard_header(letta_id, source.created_at, cwd):
        data[SESSION_KEY] = header
    manifest = source.manifest
    if manifest is not None and manifest != standard_manifest(source.created_at):
        data[MANIFEST_KEY] = manifest
    key = source.directory.key
    if key != (
        f"default:{source.agent_id}" if letta_id == "default" else f"conversation:{letta_id}"
    ):
        data[KEY_KEY] = key
    return data


def _damage(findings: Findings) -> list[dict[str, Any]]:
    """The first hundred, what was lost before what is only odd."""
    ordered = sorted(findings.entries, key=lambda damage: not damage.is_loss)
    return [_damage_entry(damage) for damage in ordered[:MAX_DAMAGE]]


def _damage_entry(damage: Damage) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": damage.kind}
    if damage.row is not None:
        entry["row"] = damage.row
    if damage.note:
        entry["note"] = clip(damage.note, 1024)
    return entry


_PROMPT_LIMITS = {
    "content": MAX_PROMPT,
    "coreMemory": MAX_PROMPT,
    "rawSystemHash": MAX_HASH,
    "memfsRevision": MAX_HASH,
    "compiledAt": MAX_HASH,
}


PROMPT_FIELDS = tuple(_PROMPT_LIMITS)
"""The fields of system-prompt.json, in Letta's order."""


def _is_plain_prompt(prompt: dict[str, Any]) -> bool:
    """Whether a prompt has all the fields of its record, within their limits, and no others."""
    if not _PROMPT_LIMITS.keys() - {"memfsRevision"} <= prompt.keys() <= _PROMPT_LIMITS.keys():
        return False
    if valid(prompt["compiledAt"]) is None:
        return False
    return all(
        type(text) is str and well_formed(text) and len(text.encode()) <= _PROMPT_LIMITS[key]
        for key, text in prompt.items()
    )


def _seal(format: str, data: dict[str, Any], blobs: Blobs) -> Any:  # noqa: A002
    encoded = codec.encode(data, SHAPES.get((format, 1), Known()))
    blobs.update(encoded.blobs)
    return envelope(format, 1, encoded.value)


def _tags(value: Any) -> list[str]:
    if type(value) is not list:
        return []
    return [tag for each in value[:256] if (tag := clip(each, 1024))]
