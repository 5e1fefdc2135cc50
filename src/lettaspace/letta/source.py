"""One conversation's small files, and what is known of it before its rows are read."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from lettaspace.conversation import jsontext
from lettaspace.conversation.times import EPOCH, valid
from lettaspace.letta import rows
from lettaspace.letta.damage import (
    BAD_CONVERSATION,
    BAD_MANIFEST,
    BAD_PROMPT,
    NO_TIME,
    OTHER_ID,
    UNKNOWN_MANIFEST,
    Findings,
)
from lettaspace.letta.directory import (
    CONVERSATION,
    MANIFEST,
    MESSAGES,
    PATIENCE,
    PROMPT,
    ConversationDir,
    Small,
    read_small,
)
from lettaspace.letta.rows import BadRow, Kind

IDS = "in_context_message_ids"

_PEEK_ROWS = 32
_PEEK_BYTES = 1 << 20


@dataclass(slots=True)
class Source:
    """What the small files of a conversation say, with their gaps filled."""

    directory: ConversationDir
    raw: bytes | None
    """conversation.json as it was read, to tell whether it changed."""
    value: dict[str, Any]
    """What conversation.json holds, without the window; recovered where it cannot be read."""
    window: list[str] | None
    """The ids in the window, or None when nothing says so."""
    agent_id: str
    """"" for a conversation without an agent."""
    created_at: str
    manifest: dict[str, Any] | None
    prompt: dict[str, Any] | None
    recovered: bool
    """conversation.json could not be read."""
    readable: bool
    """The manifest is of a version whose rows are understood."""
    findings: Findings = field(default_factory=Findings)


def read_source(directory: ConversationDir, *, patience: float = PATIENCE) -> Source:
    """Reads the small files. Never raises for what is in them.

    `patience` is how many seconds each is waited for that is torn and changing.
    """
    findings = Findings()
    conversation = read_small(directory.path / CONVERSATION, patience=patience)
    manifest = read_small(directory.path / MANIFEST, patience=patience)
    prompt = read_small(directory.path / PROMPT, patience=patience)

    value = conversation.value
    if value is None:
        findings.add(BAD_CONVERSATION, None, f"{CONVERSATION}: {conversation.problem}")
    readable = _check_manifest(manifest, directory, findings)
    if prompt.value is None and prompt.problem != "missing":
        findings.add(BAD_PROMPT, None, f"{PROMPT}: {prompt.problem}")

    found = _Recovery(directory, manifest)
    agent_id = _agent_id(value, directory)
    if agent_id is None:
        agent_id = found.agent_id() if value is None else ""
    created_at = valid(value.get("created_at")) if value is not None else None
    if created_at is None:
        created_at = found.created_at()
        if created_at is None:
            created_at = EPOCH
            findings.add(NO_TIME, None, "of the conversation")
    window: list[str] | None = None
    if value is None:
        value = {"id": directory.id, "agent_id": agent_id or None, "created_at": created_at}
    else:
        if value.get("id") != directory.id:
            findings.add(OTHER_ID, None, f"{CONVERSATION} has another id than its directory")
        listed = value.get(IDS)
        if type(listed) is list:
            window = [each for each in listed if type(each) is str]
        value = {key: item for key, item in value.items() if key != IDS}
    return Source(
        directory,
        conversation.raw,
        value,
        window,
        agent_id,
        created_at,
        manifest.value,
        prompt.value,
        conversation.value is None,
        readable,
        findings,
    )


def prompt_digest(prompt: dict[str, Any] | None) -> str | None:
    """Changes when a system-prompt.json says something else; None where there is none."""
    if prompt is None:
        return None
    return sha256(jsontext.dumps(dict(sorted(prompt.items())), ascii=True).encode()).hexdigest()


def is_unchanged(source: Source) -> bool:
    """Whether conversation.json is still what was read."""
    return read_small(source.directory.path / CONVERSATION, patience=0).raw == source.raw


def _check_manifest(manifest: Small, directory: ConversationDir, findings: Findings) -> bool:
    if manifest.value is None:
        # Letta writes the manifest with the first row.
        if manifest.problem != "missing" or _has_rows(directory):
            findings.add(BAD_MANIFEST, None, f"{MANIFEST}: {manifest.problem}")
        return True
    version = manifest.value.get("schema_version")
    if version in (1, 2):
        return True
    if type(version) is not int:
        findings.add(BAD_MANIFEST, None, f"{MANIFEST}: no schema version")
        return True
    findings.add(
        UNKNOWN_MANIFEST, None, f"{MANIFEST}: schema version {version} is newer than this program"
    )
    return False


def _has_rows(directory: ConversationDir) -> bool:
    try:
        return (directory.path / MESSAGES).stat().st_size > 0
    except OSError:
        return False


def _agent_id(value: dict[str, Any] | None, directory: ConversationDir) -> str | None:
    agent_id = value.get("agent_id") if value is not None else None
    if type(agent_id) is str and agent_id:
        return agent_id
    return directory.default_agent


class _Recovery:
    """What the manifest and the first rows tell of a conversation that does not itself."""

    def __init__(self, directory: ConversationDir, manifest: Small) -> None:
        self.directory = directory
        self.manifest = manifest.value or {}
        self._rows: list[tuple[Kind, dict[str, Any], dict[str, Any]]] | None = None

    def created_at(self) -> str | None:
        """The session header has the same time, and as a rule so has the manifest."""
        peeked = self.peek()
        headers = (valid(row.get("timestamp")) for kind, row, _ in peeked if kind is Kind.HEADER)
        for time in headers:
            if time is not None:
                return time
        if (time := valid(self.manifest.get("created_at"))) is not None:
            return time
        for _, row, metadata in peeked:
            time = valid(metadata.get("created_at")) or valid(row.get("timestamp"))
            if time is not None:
                return time
        return None

    def agent_id(self) -> str:
        for _, _, metadata in self.peek():
            agent_id = metadata.get("agent_id")
            if type(agent_id) is str and agent_id:
                return agent_id
        return ""

    def peek(self) -> list[tuple[Kind, dict[str, Any], dict[str, Any]]]:
        if self._rows is None:
            self._rows = []
            try:
                with (self.directory.path / MESSAGES).open("rb") as file:
                    for line in rows.read_lines(file, max_row=_PEEK_BYTES):
                        if line.number > _PEEK_ROWS or line.offset > _PEEK_BYTES:
                            break
                        self._add(line)
            except OSError:
                pass
        return self._rows

    def _add(self, line: rows.Line) -> None:
        if line.raw is None or self._rows is None:
            return
        try:
            value = rows.parse(line.raw, line.offset)
            kind, message = rows.recognise(value)
        except BadRow:
            return
        if kind is not Kind.UNKNOWN:
            metadata = message.get("metadata")
            self._rows.append((kind, value, metadata if type(metadata) is dict else {}))
