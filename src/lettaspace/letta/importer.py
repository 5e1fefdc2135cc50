"""Bringing a whole storage directory of Letta Code into a space.

The records are a function of the directory; the directory is only read. Every conversation
is read in two passes, so memory does not grow with its length, and one whose files are those
of its last complete import is passed over.
"""

from collections.abc import Callable, Container, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from lettaspace.conversation.derive import conversation_tid
from lettaspace.conversation.records import AGENT, CONVERSATION, CONVERSATION_STATE, MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.errors import Damaged, InvalidInput, InvalidRecord
from lettaspace.letta import divergence, fields, synced, tracking
from lettaspace.letta.build import Blobs, agent_key, agent_record, conversation_record
from lettaspace.letta.continuing import Part
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
from lettaspace.letta.export import agent_file
from lettaspace.letta.following import Following
from lettaspace.letta.live import Live
from lettaspace.letta.located import home, lineage, locate
from lettaspace.letta.replay import replay
from lettaspace.letta.report import FAILED, ConversationReport, Report
from lettaspace.letta.scan import Changed, Scan, scan
from lettaspace.letta.source import Source, is_unchanged, read_source
from lettaspace.letta.store import Prepared, open_rows, store_conversation
from lettaspace.letta.synced import Base, Synced
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
    return Importer(space, Path(directory), dry_run).run(progress)


def _is_same(source: Source, base: Base) -> bool:
    """Whether a conversation is the one that its key had before."""
    if source.recovered:
        return True
    names = ("agent_id", "created_at")
    return all(source.value.get(name) == base.value.get(name) for name in names)


def check_directory(space: Space, directory: Path | str) -> None:
    """Reads all that an import would read. Raises Damaged if something is lost or diverged."""
    report = Importer(space, Path(directory), dry_run=True).run(None)
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
    run = Importer(space, directory, dry_run=False, following=following, final=final)
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


class Importer:
    """Imports one directory's agents and conversations, one by one."""

    def __init__(
        self,
        space: Space,
        directory: Path,
        dry_run: bool,
        following: Following | None = None,
        final: Container[str] = (),
        part: Part | None = None,
    ) -> None:
        self.space = space
        self.part = part
        self.directory = directory
        self.name = str(directory.resolve())
        self.known = tracking.load(space, self.name)
        self.synced = synced.load(space, self.name)
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
        value = agent_record(agent.id, self.merged(agent, small.value), blobs)
        item = Item(AGENT, agent_key(agent.id), value, self.report.agents, blobs=blobs)
        self.writer.put(item)

    def merged(self, agent: AgentFile, value: dict[str, Any]) -> dict[str, Any]:
        """What an agent's record is to say: what the file says, with what was changed in the
        record since both said the same."""
        last = self.last(f"{synced.AGENT}{agent.id}")
        if last is None:
            return value
        with self.space.repo.snapshot() as view:
            theirs = agent_file(self.space, view, agent_key(agent.id))
        return value if theirs is None else fields.merge(last[1].value, value, theirs)

    def last(self, key: str) -> tuple[Synced, Base] | None:
        """How something stood when the space and the directory were last the same."""
        return synced.get(self.space, self.name, key) if key in self.synced else None

    def note(self, key: str, known: Synced, base: Base) -> None:
        """Notes how something stands in the directory, which is as the space says it; and that
        there is nothing to be imported, if that is so of all its files."""
        synced.remember(self.space, self.name, key, known, base)
        self.synced[key] = known
        if synced.is_conversation(key):
            self.known[key] = Known(known.name, known.mark)

    def conversation(
        self, directory: ConversationDir, entry: ConversationReport, *, again: bool = False
    ) -> Prepared | None:
        """Imports one; what was read of it, or None if it was not."""
        known = self.known.get(directory.key)
        if known is not None and known.is_current(directory) and not again:
            entry.conversation = known.conversation
            entry.read = False
            return None
        patient = self.following is not None and not (
            str(directory.path) in self.final or at_rest(directory)
        )
        try:
            for _ in range(ATTEMPTS):
                try:
                    prepared = self.prepare(directory, entry, patient)
                    if prepared is None:
                        continue
                    store_conversation(self.writer, prepared, entry, self.part)
                except Changed:
                    self.writer.discard()
                    continue
                self.remember(directory, prepared, entry)
                if self.following is not None:
                    found = doubts(prepared.source, prepared.plan)
                    self.following.stored(directory.key, found, prepared.live)
                return prepared
            if patient:
                raise Unsettled(frozenset({BUSY}))
        except (OSError, Damaged, InvalidInput, InvalidRecord) as error:
            self.writer.discard()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            entry.findings.add(BAD_CONVERSATION, None, reason or "cannot be read")
        else:
            entry.findings.add(BUSY, None, "it kept changing while it was read")
        entry.outcome = FAILED
        return None

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
        last = self.last(directory.key)
        if last is not None and not _is_same(source, last[1]):
            last = None  # Letta gave the key to another conversation
        tid = self.tid(source) if last is None else last[0].name
        derived = tid if last is None else last[0].derived
        path = directory.path / MESSAGES
        live: Live | None = None
        if not source.readable:
            scanned = Scan(path, derived, source.created_at)
        else:
            if self.following is not None:
                live = self.following.rows(directory, source, derived, patient)
            scanned = live.result() if live is not None else scan(path, derived, source.created_at)
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
        prepared = Prepared(source, tid, plan, seen, live)
        if last is not None:
            prepared.base, prepared.size = last[1], last[0].size
        self.locate(prepared, is_known=last is not None)
        entry.conversation = prepared.tid
        return prepared

    def locate(self, prepared: Prepared, *, is_known: bool) -> None:
        """Finds the conversation that a file belongs to, and its messages there, if the space
        writes it as well: if it was compared with the directory before, rows of ours are in the
        file, or it was parted from another."""
        space, plan = self.space, prepared.plan
        if not is_known and prepared.source.directory.key not in self.known:
            prepared.tid = self.given_home(prepared) or prepared.tid
        if space.repo.get(CONVERSATION, prepared.tid) is None:
            return
        state = space.repo.get(CONVERSATION_STATE, prepared.tid)
        parted = state is not None and bool(divergence.partings(state.value))
        if not (is_known or parted or 1 in plan.scan.given):
            return
        size = prepared.size if is_known else None
        located = locate(space, prepared.tid, plan, size=size)
        found = home(plan, located)
        if found != prepared.tid and len(lineage(space, found, plan.scan.conversation)) > 1:
            prepared.tid = found
            located = locate(space, found, plan, size=size)
        prepared.located = located

    def given_home(self, prepared: Prepared) -> str | None:
        """The conversation in which the last message stands that the file has in a row of ours,
        if it is one with the same agent."""
        scan = prepared.plan.scan
        last = scan.given.rfind(1)
        record = self.space.repo.get(MESSAGE, scan.tid(last)) if last >= 0 else None
        prefix = self.space.address.conversation("")
        if record is None or not record.value["conversation"].startswith(prefix):
            return None
        rkey: str = record.value["conversation"].removeprefix(prefix)
        conversation = self.space.repo.get(CONVERSATION, rkey)
        agent = self.space.address.agent(agent_key(prepared.source.agent_id))
        if conversation is None or conversation.value["agent"] != agent:
            return None
        return rkey

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
