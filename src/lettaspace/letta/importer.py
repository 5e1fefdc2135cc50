"""Bringing a whole storage directory of Letta Code into a space.

The records are a function of the directory; the directory is only read. Every conversation
is read in two passes, so memory does not grow with its length, and one whose files are those
of its last complete import is passed over.
"""

from collections.abc import Callable, Container, Iterable
from functools import cached_property
from pathlib import Path

from lettaspace.conversation.derive import conversation_tid
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
from lettaspace.letta.directory import (
    MESSAGES,
    PATIENCE,
    AgentFile,
    ConversationDir,
    Listing,
    list_directory,
    read_small,
)
from lettaspace.letta.doubt import Unsettled, at_rest, doubts
from lettaspace.letta.following import Following
from lettaspace.letta.live import Live
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


def import_some(
    space: Space,
    directory: Path,
    conversations: Iterable[ConversationDir],
    agents: Iterable[AgentFile],
    following: Following,
    *,
    final: Container[str] = (),
    again: bool = False,
) -> tuple[Report, dict[str, frozenset[str]]]:
    """Imports some conversations and agents of a directory, as `import_directory` would.

    What may be half of something that Letta is writing just now is left alone, unless its path
    is in `final`; the second return value says why, by path. With `again` conversations are
    compared with the space even if they are unchanged since their last import.
    """
    run = _Import(space, directory, dry_run=False, following=following, final=final)
    unsettled: dict[str, frozenset[str]] = {}
    for agent in agents:
        try:
            run.agent(agent)
        except Unsettled as reason:
            unsettled[str(agent.path)] = reason.doubts
    run.writer.flush()
    for each in conversations:
        entry = ConversationReport(each.key)
        try:
            run.conversation(each, entry, again=again)
        except Unsettled as reason:
            unsettled[str(each.path)] = reason.doubts
        else:
            run.report.conversations.append(entry)
    return run.report, unsettled


class _Import:
    def __init__(
        self,
        space: Space,
        directory: Path,
        dry_run: bool,
        following: Following | None = None,
        final: Container[str] = (),
    ) -> None:
        self.space = space
        self.directory = directory
        self.name = str(directory.resolve())
        self.known = tracking.load(space, self.name)
        self.dry_run = dry_run
        self.following = following
        self.final = final
        self.writer = Writer(space, dry_run, following.check if following is not None else None)
        self.report = Report(dry_run)

    @cached_property
    def listing(self) -> Listing:
        return list_directory(self.directory)

    @cached_property
    def owners(self) -> dict[str, str]:
        """Which key has a TID. Conversations that were here before keep theirs."""
        return {
            self.known[each.key].conversation: each.key
            for each in self.listing.conversations
            if each.key in self.known
        }

    def run(self, progress: Progress | None) -> Report:
        for name in self.listing.odd:
            self.report.findings.add(BAD_NAME, None, name)
        for agent in self.listing.agents:
            self.agent(agent)
        self.writer.flush()
        for directory in self.listing.conversations:
            entry = ConversationReport(directory.key)
            self.report.conversations.append(entry)
            self.conversation(directory, entry)
            if progress is not None:
                progress(entry)
        return self.report

    def agent(self, agent: AgentFile) -> None:
        findings = self.report.findings
        waits = self.following is None or str(agent.path) in self.final
        small = read_small(agent.path, patience=PATIENCE if waits else 0)
        if small.value is None:
            if not waits:
                raise Unsettled(frozenset({small.problem}))
            findings.add(BAD_AGENT, None, f"{agent.path.name}: {small.problem}")
            return
        if small.value.get("id") != agent.id:
            findings.add(OTHER_ID, None, f"{agent.path.name} holds another id")
        blobs: Blobs = {}
        value = agent_record(agent.id, small.value, blobs)
        item = Item(AGENT, agent_key(agent.id), value, self.report.agents, blobs=blobs)
        self.writer.put(item)

    def conversation(
        self, directory: ConversationDir, entry: ConversationReport, *, again: bool = False
    ) -> None:
        known = self.known.get(directory.key)
        if known is not None and known.is_current(directory) and not again:
            entry.conversation = known.conversation
            entry.read = False
            return
        patient = self.following is not None and not (
            str(directory.path) in self.final or at_rest(directory)
        )
        try:
            for _ in range(ATTEMPTS):
                try:
                    prepared = self.prepare(directory, entry, patient)
                    if prepared is None:
                        continue
                    store_conversation(self.writer, prepared, entry)
                except Changed:
                    self.writer.discard()
                    continue
                self.remember(directory, prepared, entry)
                if self.following is not None:
                    found = doubts(prepared.source, prepared.plan)
                    self.following.stored(directory.key, found, prepared.live)
                return
            if patient:
                raise Unsettled(frozenset({BUSY}))
        except (OSError, Damaged, InvalidInput, InvalidRecord) as error:
            self.writer.discard()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            entry.findings.add(BAD_CONVERSATION, None, reason or "cannot be read")
        else:
            entry.findings.add(BUSY, None, "it kept changing while it was read")
        entry.outcome = FAILED

    def prepare(
        self, directory: ConversationDir, entry: ConversationReport, patient: bool
    ) -> Prepared | None:
        """The first pass. None when conversation.json changed meanwhile.

        Raises Unsettled if `patient` and what was read may be half of something.
        """
        entry.findings = Findings()
        entry.messages.unchanged = entry.records.unchanged = 0
        seen = tracking.mark(directory)
        source = read_source(directory, patience=0 if patient else PATIENCE)
        entry.conversation = tid = self.tid(source)
        path = directory.path / MESSAGES
        live: Live | None = None
        if not source.readable:
            scanned = Scan(path, tid, source.created_at)
        else:
            if self.following is not None:
                live = self.following.rows(directory, source, tid, patient)
            scanned = live.result() if live is not None else scan(path, tid, source.created_at)
        with open_rows(path) as file:
            plan = replay(scanned, file, source.window)
        if not is_unchanged(source):
            return None
        if patient and self.following is not None:
            self.following.wait(directory.key, doubts(source, plan), live)
        for findings in (source.findings, scanned.findings, plan.findings):
            entry.findings.extend(findings)
        version = source.manifest.get("schema_version") if source.manifest else None
        if scanned.bare and version != 1:
            entry.findings.add(BARE_ROW, None, f"{scanned.bare} messages stand without a row")
        return Prepared(source, tid, plan, seen, live)

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
