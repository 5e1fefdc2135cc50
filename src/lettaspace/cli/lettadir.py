"""What the commands share that read Letta's directory, or bring it and the space together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lettaspace.cli.output import Output
from lettaspace.cli.progress import steps
from lettaspace.cli.text import counted, field
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.cli.differing import Differences
    from lettaspace.conversation.space import Space
    from lettaspace.errors import LettaspaceError
    from lettaspace.letta.agentmemories import MemoryChange
    from lettaspace.letta.reconciling import ReconcileReport
    from lettaspace.letta.report import ConversationReport, Report
    from lettaspace.letta.restoring import RestoreReport
    from lettaspace.remote.account import Account


def letta_directory(named: Path | None) -> Path:
    """The directory named, or Letta's own."""
    from lettaspace.letta.directory import default_directory

    return named.expanduser() if named is not None else default_directory()


def check(directory: Path) -> None:
    """Raises NotFound before a space is made for a directory that cannot be read."""
    from lettaspace.letta.directory import list_directory

    list_directory(directory)


def goes_both_ways(space: "Space", account: "Account | None") -> bool:
    """Whether what the space has is brought into Letta's directory, too: where the space is an
    account's, so that other machines write in it. Elsewhere the directory has all of it, but for
    what was made beside Letta, and that is not to turn up there unasked."""
    if account is None:
        return False
    from lettaspace.remote import replicas

    with space.database.read() as connection:
        replica = replicas.own(connection)
    return replica is not None and replica.author == account.did


@dataclass(slots=True)
class Brought:
    """What an import, or a run of `reconcile`, did."""

    imported: "Report"
    reconciled: "ReconcileReport | None" = None
    differences: "Differences | None" = None
    """Of a dry run both ways: what is not the same in the directory and in the space."""

    @property
    def memories(self) -> "list[MemoryChange]":
        return [] if self.reconciled is None else self.reconciled.memories

    def add(self, later: "Brought") -> None:
        """Adds what a later run did: what was only found again counts once."""
        self.imported.add(later.imported)
        if self.reconciled is None:
            self.reconciled = later.reconciled
        elif later.reconciled is not None:
            self.reconciled.add(later.reconciled)

    def failure(self) -> "LettaspaceError | None":
        """What a person has to look at."""
        from lettaspace.errors import Conflict

        lines = [line for each in self.memories if not each.ok for line in memory_lines(each)]
        return Conflict(lines[0]) if lines else None

    def to_json(self) -> dict[str, Any]:
        """What is beside the import's own form."""
        done = self.reconciled
        differing = {} if self.differences is None else self.differences.to_json()
        return {
            "restored": None if done is None else done.restored.to_json(),
            "parted": [] if done is None else done.parted,
            "memories": [each.to_json() for each in self.memories],
            "differences": differing.get("conversations"),
            "agentDifferences": differing.get("agents"),
            "memoryDifferences": differing.get("memories"),
        }


def look(
    space: "Space", directory: Path, *, strict: bool = False, both_ways: bool = False
) -> Brought:
    """What one of the other two would do."""
    from lettaspace.cli.differing import Differences

    brought = bring_in(space, directory, strict=strict, dry_run=True)
    if both_ways:
        brought.differences = Differences.between(space, directory)
    return brought


def bring_in(
    space: "Space", directory: Path, *, strict: bool = False, dry_run: bool = False
) -> Brought:
    """The import, with progress on the terminal."""
    from lettaspace.letta.importer import import_directory

    with _counting(directory) as progress:
        return Brought(
            import_directory(space, directory, strict=strict, dry_run=dry_run, progress=progress)
        )


def bring_both_ways(
    space: "Space", directory: Path, *, strict: bool = False, allow_code: bool = False
) -> Brought:
    """What only one of the two has is brought to the other, with progress on the terminal."""
    from lettaspace.letta.importer import check_directory
    from lettaspace.letta.reconciling import reconcile
    from lettaspace.remote.branches import diverge

    if strict:
        check_directory(space, directory)
    with _counting(directory) as progress:
        done = reconcile(space, directory, part=diverge, allow_code=allow_code, progress=progress)
    return Brought(done.imported, done)


@contextmanager
def _counting(directory: Path) -> Iterator[Callable[["ConversationReport"], None]]:
    from lettaspace.letta.directory import list_directory

    total = len(list_directory(directory).conversations)
    done = 0
    with steps() as step:

        def progress(_conversation: "ConversationReport") -> None:
            nonlocal done
            done += 1
            step("conversations", done, total)

        yield progress


def summarise(brought: Brought, directory: Path, out: Output) -> None:
    """What went into the space, as a table; what went into the directory; and then a line for
    each thing that was found."""
    report = brought.imported
    found = list(report.lines())
    messages, agents = report.messages, report.agents
    outcomes = [each.outcome for each in report.conversations]
    out.line(f"{'Would read' if report.dry_run else 'Read'} {field(str(directory))}")
    out.table(
        ["", "NEW", "CHANGED", "UNCHANGED", "DAMAGED", ""],
        [
            (
                "conversations",
                outcomes.count("new"),
                outcomes.count("changed"),
                outcomes.count("unchanged"),
                sum(each.incomplete for each in report.conversations),
                _others(outcomes),
            ),
            ("messages", messages.new, messages.changed, messages.unchanged, "", ""),
            ("agents", agents.new, agents.changed, agents.unchanged, report.findings.losses, ""),
        ],
    )
    if brought.reconciled is not None:
        for line in reconciled_lines(brought.reconciled, directory):
            out.line(line)
    if brought.differences:
        _tell_differences(brought.differences, directory, out)
    for line in found:
        out.line(f"! {inert(line)}")
    if report.incomplete:
        out.line("Something could not be read; the rest is in the space, marked incomplete.")


def _tell_differences(found: "Differences", directory: Path, out: Output) -> None:
    """What a sync would write into Letta's directory, and all that is not the same."""
    talks = [each for each in found.conversations if each.there]
    if talks:
        rows = counted(sum(each.there for each in talks), "message")
        into = field(str(directory))
        out.line(f"Would write into {into}: {counted(len(talks), 'conversation')} with {rows}")
    found.tell(out)


def reconciled_lines(report: "ReconcileReport", directory: Path) -> Iterator[str]:
    """What went from the space into Letta's directory, and what of memories went either way;
    what a person has to look at begins with an exclamation mark."""
    yield from restored_lines(report.restored, directory)
    for key in report.parted:
        yield f"Both sides went on with {field(key)}: one of the two is a fork now"
    for each in report.memories:
        for line in memory_lines(each):
            yield line if each.ok else f"! {line}"


def restored_lines(
    report: "RestoreReport", directory: Path, *, dry_run: bool = False
) -> Iterator[str]:
    """What was written into Letta's directory, and what was not, a line each."""
    from lettaspace.letta.brought import Outcome

    written = (Outcome.NEW, Outcome.CHANGED)
    agents = sum(each.outcome in written for each in report.agents)
    talks = sum(each.outcome in written for each in report.conversations)
    if agents or talks:
        parts = [counted(agents, "agent")] if agents else []
        if talks:
            rows = counted(report.rows, "message")
            parts.append(f"{counted(talks, 'conversation')} with {rows}")
        into = "Would go into" if dry_run else "Into"
        yield f"{into} {field(str(directory))}: {', '.join(parts)}"
    for each in (*report.agents, *report.conversations):
        name = field(each.key or each.name)
        if each.aside is not None:
            yield f"{name}: half of a row was cut off; it is kept as {field(str(each.aside))}"
        if each.outcome is Outcome.BUSY:
            yield f"{name}: later, for {inert(each.note)}"
        elif each.outcome is Outcome.LEFT and each.note != _NOTHING_SAID:
            yield f"! {name}: not written, for {inert(each.note)}"


_NOTHING_SAID = "nothing was ever said in it"


def memory_lines(change: "MemoryChange") -> Iterator[str]:
    """What became of an agent's memory, in words."""
    from lettaspace.letta.memoryreport import Outcome

    name = f"memory of {field(change.agent)}"
    if change.problem:
        yield f"{name}: {inert(change.problem)}"
        return
    for each in change.reports:
        files = field(", ".join(each.conflicts))
        if each.outcome is Outcome.UNRESOLVED:
            yield f"{name}: conflicts that nobody resolved, so nothing was stored: {files}"
        elif each.outcome is Outcome.CONFLICT:
            yield f"{name}: both machines changed {files}; both are kept, and git cannot merge them"
        elif each.outcome is Outcome.UNRELATED:
            yield f"{name}: it has no history in common with the one in the space; both are kept"
        elif each.later:
            yield f"{name}: later, for {inert(each.message)}"
        elif each.outcome in (Outcome.RESTORED, Outcome.FORWARDED, Outcome.MERGED):
            yield f"{name}: {each.outcome}"
    code = [path for path in change.left_out if path not in change.links]
    if code:
        files = field(", ".join(code))
        yield f"{name}: code stays out until --allow-code lets it in: {files}"
    if change.links:
        yield f"{name}: links that lead outside stay out: {field(', '.join(change.links))}"


def _others(outcomes: list[str]) -> str:
    names = sorted(set(outcomes) - {"new", "changed", "unchanged"})
    return ", ".join(f"{outcomes.count(name)} {name}" for name in names)
