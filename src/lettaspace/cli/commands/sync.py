"""`lettaspace sync`."""

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option, letta_option
from lettaspace.cli.output import Output
from lettaspace.cli.progress import steps
from lettaspace.cli.remote import link_to, open_space, signed_in, words
from lettaspace.cli.text import field
from lettaspace.page.inert import inert

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.report import ConversationReport, Report
    from lettaspace.remote.account import Account


@cataloged("sync")
@letta_option
@click.option("--strict", is_flag=True, help="If anything cannot be read, store nothing; exit 1.")
@click.option("--dry-run", is_flag=True, help="Store nothing; say what would be stored.")
@click.option("--no-host", is_flag=True, help="Leave the account's host alone.")
@click.option("--members", is_flag=True, help="Bring in what others wrote in the space, too.")
@click.option("--watch", is_flag=True, help="Then follow the directory and the host.")
@json_option
@click.pass_obj
def command(
    app: App,
    letta: Path | None,
    strict: bool,
    dry_run: bool,
    no_host: bool,
    members: bool,
    watch: bool,
) -> None:
    """Bring a Letta Code directory in: agents, conversations, prompts, messages; and sync the
    space with the host of the account that is signed in.

    The directory is only read. What is in the space already is not written again. What cannot
    be read is reported, and the rest is brought in all the same. Where nobody is signed in, or
    with --dry-run, no host is asked; where somebody is, there need be no directory.
    """
    from lettaspace.remote.account import Account

    if members and (no_host or dry_run):
        raise click.UsageError("--members asks the host")
    if watch and (app.json or dry_run):
        raise click.UsageError("--watch goes with neither --json nor --dry-run")
    account = None if no_host or dry_run else Account.load(app.home)
    if members and account is None:
        signed_in(app)
    directory = letta_directory(letta)
    here = None if letta is None and account is not None and not directory.exists() else directory
    if here is not None:
        check(here)
    with open_space(app.home, account) as space:
        report = None if here is None else bring_in(space, here, strict=strict, dry_run=dry_run)
        if report is not None and not app.json:
            summarise(report, directory, app.out)
        if watch:
            _follow(app, space, here, account, members=members)
        else:
            _host_part(app, space, report, here, account, members=members)


def _host_part(
    app: App,
    space: "Space",
    report: "Report | None",
    directory: Path | None,
    account: "Account | None",
    *,
    members: bool,
) -> None:
    """Syncs with the host, if there is one, and says what there is to be said."""
    from lettaspace.errors import LettaspaceError
    from lettaspace.letta.report import Report

    remote: dict[str, Any] | None = None
    failure: LettaspaceError | None = None
    lines: list[str] = []
    if account is not None:
        from lettaspace.remote.exchanging import exchange

        remote = {"host": account.host}
        try:
            with link_to(space, account) as (link, progress):
                done = exchange(link, progress, members=members or None)
            remote |= done.to_json()
            lines += words(done, account.host)
        except LettaspaceError as error:
            failure = error
            remote |= {"error": error.code, "message": str(error)}
    if app.json:
        where = None if directory is None else str(directory)
        app.out.json({"directory": where, **(report or Report()).to_json(), "remote": remote})
    else:
        for line in lines:
            app.out.line(line)
    if failure is not None:
        raise failure


def _follow(
    app: App, space: "Space", directory: Path | None, account: "Account | None", *, members: bool
) -> None:
    """Follows the directory and the host, as far as there are any, until a signal comes."""
    from lettaspace.cli.following import host_followed, letta_followed, stopped_by_signals

    stop = threading.Event()

    def say(line: str) -> None:
        try:
            app.out.line(inert(line))
            sys.stdout.flush()
        except OSError:  # nobody reads any more
            stop.set()

    def complain(line: str) -> None:
        say(f"! {line}")

    with ExitStack() as stack:
        stack.enter_context(stopped_by_signals(stop))
        followed: list[str] = []
        if account is not None:
            which = members or None
            host = host_followed(space, account, say=say, complain=complain, members=which)
            stack.enter_context(host)
            followed.append(account.host)
        if directory is not None:
            stack.enter_context(letta_followed(space, directory, say=say, complain=complain))
            followed.insert(0, str(directory))
        say(f"Following {' and '.join(followed)}; Ctrl-C stops.")
        stop.wait()


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
