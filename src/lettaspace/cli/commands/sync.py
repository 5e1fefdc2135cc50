"""`lettaspace sync`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, cataloged, json_option, letta_option
from lettaspace.cli.output import Output
from lettaspace.cli.progress import steps
from lettaspace.cli.text import field
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.report import ConversationReport, Report


@cataloged("sync")
@letta_option
@click.option("--strict", is_flag=True, help="If anything cannot be read, store nothing; exit 1.")
@click.option("--dry-run", is_flag=True, help="Store nothing; say what would be stored.")
@json_option
@click.pass_obj
def command(app: App, letta: Path | None, strict: bool, dry_run: bool) -> None:
    """Bring a Letta Code directory in: agents, conversations, prompts, messages.

    The directory is only read. What is in the space already is not written again. What cannot
    be read is reported, and the rest is brought in all the same.
    """
    from lettaspace.conversation.space import Space

    directory = letta_directory(letta)
    check(directory)
    with Space.open(app.home) as space:
        report = bring_in(space, directory, strict=strict, dry_run=dry_run)
    if app.json:
        app.out.json({"directory": str(directory), **report.to_json()})
    else:
        summarise(report, directory, app.out)


def letta_directory(named: Path | None) -> Path:
    """The directory named, or Letta's own."""
    from lettaspace.letta.directory import default_directory

    return named.expanduser() if named is not None else default_directory()


def check(directory: Path) -> None:
    """Raises NotFound before a space is made for a directory that cannot be read."""
    from lettaspace.letta.directory import list_directory

    list_directory(directory)


def bring_in(
    space: "Space", directory: Path, *, strict: bool = False, dry_run: bool = False
) -> "Report":
    """The import, with progress on the terminal."""
    from lettaspace.letta.directory import list_directory
    from lettaspace.letta.importer import import_directory

    total = len(list_directory(directory).conversations)
    done = 0
    with steps() as step:

        def progress(_conversation: "ConversationReport") -> None:
            nonlocal done
            done += 1
            step("conversations", done, total)

        return import_directory(space, directory, strict=strict, dry_run=dry_run, progress=progress)


def summarise(report: "Report", directory: Path, out: Output) -> None:
    """What an import did, as a table, and then a line for each thing it found."""
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
    for line in found:
        out.line(f"! {inert(line)}")
    if report.incomplete:
        out.line("Something could not be read; the rest is in the space, marked incomplete.")


def _others(outcomes: list[str]) -> str:
    names = sorted(set(outcomes) - {"new", "changed", "unchanged"})
    return ", ".join(f"{outcomes.count(name)} {name}" for name in names)
