"""Bringing a whole storage directory of Letta Code into a space.

The records are a function of the directory; the directory is only read. Every conversation
is read in two passes, so memory does not grow with its length, and one whose files are those
of its last complete import is passed over.
"""

from collections.abc import Callable
from pathlib import Path

from lettaspace.conversation.records import AGENT, CONVERSATION
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, InvalidRecord
from lettaspace.letta import tracking
from lettaspace.letta.build import Blobs, agent_key, agent_record, conversation_record
from lettaspace.letta.damage import (
    BAD_AGENT,
    BAD_CONVERSATION,
    BAD_NAME,
    BARE_ROW,
    BUSY,
    OTHER_ID,
    Findings,
)
from lettaspace.letta.derive import conversation_tid
from lettaspace.letta.directory import (
    MESSAGES,
    ConversationDir,
    list_directory,
    read_small,
)
from lettaspace.letta.replay import replay
from lettaspace.letta.report import FAILED, ConversationReport, Report
from lettaspace.letta.scan import Changed, Scan, scan
from lettaspace.letta.source import Source, is_unchanged, read_source
from lettaspace.letta.store import Prepared, open_rows, store_conversation
from lettaspace.letta.tracking import Known
from lettaspace.letta.writer import Item, Writer

ATTEMPTS = 4
"""How often a conversation that changes while it is read is begun."""

MAX_TWINS = 64
"""Conversations of one agent that may have been made in the same millisecond."""

Progress = Callable[[ConversationReport], None]


def import_directory(
    space: Space,
    directory: Path | str,
    *,
    strict: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Imports everything in `directory`; `progress` is called after every conversation.

    What cannot be read is named in the report, and all the rest is imported; with `strict`
    any loss raises Damaged and nothing at all is stored. A dry run writes nothing and reports
    what would be written. Raises NotFound if the directory is none of Letta's.
    """
    if strict:
        check_directory(space, directory)
    return _Import(space, Path(directory), dry_run).run(progress)


def check_directory(space: Space, directory: Path | str) -> None:
    """Reads all that an import would read. Raises Damaged if something is lost or diverged."""
    report = _Import(space, Path(directory), dry_run=True).run(None)
    lines = list(report.losses())
    if lines:
        more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
        raise Damaged(f"nothing was imported: {lines[0]}{more}")


class _Import:
    def __init__(self, space: Space, directory: Path, dry_run: bool) -> None:
        self.space = space
        self.listing = list_directory(directory)
        self.name = str(directory.resolve())
        self.known = tracking.load(space, self.name)
        self.dry_run = dry_run
        self.writer = Writer(space, dry_run)
        self.report = Report(dry_run)
        # Which key has a TID. Conversations that were here before keep theirs.
        self.owners = {
            self.known[each.key].conversation: each.key
            for each in self.listing.conversations
            if each.key in self.known
        }

    def run(self, progress: Progress | None) -> Report:
        for name in self.listing.odd:
            self.report.findings.add(BAD_NAME, None, name)
        self.agents()
        for directory in self.listing.conversations:
            entry = ConversationReport(directory.key)
            self.report.conversations.append(entry)
            self.conversation(directory, entry)
            if progress is not None:
                progress(entry)
        return self.report

    def agents(self) -> None:
        findings = self.report.findings
        for agent in self.listing.agents:
            small = read_small(agent.path)
            if small.value is None:
                findings.add(BAD_AGENT, None, f"{agent.path.name}: {small.problem}")
                continue
            if small.value.get("id") != agent.id:
                findings.add(OTHER_ID, None, f"{agent.path.name} holds another id")
            blobs: Blobs = {}
            value = agent_record(agent.id, small.value, blobs)
            item = Item(AGENT, agent_key(agent.id), value, self.report.agents, blobs=blobs)
            self.writer.put(item)
        self.writer.flush()

    def conversation(self, directory: ConversationDir, entry: ConversationReport) -> None:
        known = self.known.get(directory.key)
        if known is not None and known.is_current(directory):
            entry.conversation = known.conversation
            entry.read = False
            return
        try:
            for _ in range(ATTEMPTS):
                try:
                    prepared = self.prepare(directory, entry)
                    if prepared is None:
                        continue
                    store_conversation(self.writer, prepared, entry)
                except Changed:
                    self.writer.discard()
                    continue
                self.remember(directory, prepared, entry)
                return
        except (OSError, Damaged, InvalidInput, InvalidRecord) as error:
            self.writer.discard()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            entry.findings.add(BAD_CONVERSATION, None, reason or "cannot be read")
        else:
            entry.findings.add(BUSY, None, "it kept changing while it was read")
        entry.outcome = FAILED

    def prepare(self, directory: ConversationDir, entry: ConversationReport) -> Prepared | None:
        """The first pass. None when conversation.json changed meanwhile."""
        entry.findings = Findings()
        entry.messages.unchanged = entry.records.unchanged = 0
        seen = tracking.mark(directory)
        source = read_source(directory)
        entry.conversation = tid = self.tid(source)
        path = directory.path / MESSAGES
        if source.readable:
            scanned = scan(path, tid, source.created_at)
        else:
            scanned = Scan(path, tid, source.created_at)
        with open_rows(path) as file:
            plan = replay(scanned, file, source.window)
        if not is_unchanged(source):
            return None
        for findings in (source.findings, scanned.findings, plan.findings):
            entry.findings.extend(findings)
        version = source.manifest.get("schema_version") if source.manifest else None
        if scanned.bare and version != 1:
            entry.findings.add(BARE_ROW, None, f"{scanned.bare} messages stand without a row")
        return Prepared(source, tid, plan, seen)

    def tid(self, source: Source) -> str:
        """The TID of a conversation; of several alike, the first by key takes the first."""
        key = source.directory.key
        if (known := self.known.get(key)) is not None:
            if source.recovered:
                return known.conversation
            record = self.space.repo.get(CONVERSATION, known.conversation)
            wanted = conversation_record(source, self.space.address)
            if record is not None and record.value.items() >= wanted.items():
                return known.conversation
        for ordinal in range(MAX_TWINS):
            tid = conversation_tid(source.agent_id, source.created_at, ordinal)
            if self.owners.setdefault(tid, key) == key:
                return tid
        raise Damaged(f"more than {MAX_TWINS} conversations of one agent have one created_at")

    def remember(
        self, directory: ConversationDir, prepared: Prepared, entry: ConversationReport
    ) -> None:
        # What is damaged is read, and reported, every time.
        if not self.dry_run and not entry.incomplete:
            known = Known(prepared.tid, prepared.fingerprint)
            tracking.remember(self.space, self.name, directory.key, known)
