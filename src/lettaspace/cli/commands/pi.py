"""`lettaspace pi`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, author_option, json_option
from lettaspace.cli.catalog import COMMANDS
from lettaspace.cli.output import Output
from lettaspace.cli.sink import sink
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.pi.importer import Report

_NAMED = 5
"""So many findings are named for a file; JSON has all of them."""


@click.group(name="pi", short_help=COMMANDS["pi"])
def command() -> None:
    """Sessions of pi, the coding agent: bring their files in, write them out."""


@command.command("import", short_help="Bring session files in.")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE.jsonl..."
)
@json_option
@click.pass_obj
def import_(app: App, files: tuple[Path, ...]) -> None:
    """Bring session files of pi in, each as a conversation of the agent `pi`.

    A file is stored whole or not at all, and bringing it in again stores only what is new. pi
    keeps its sessions under ~/.pi/agent/sessions; files are only read.
    """
    from lettaspace.conversation.space import Space
    from lettaspace.pi.importer import import_session
    from lettaspace.pi.session import read_session

    sessions = [(path, read_session(path.expanduser())) for path in files]
    reports: list[tuple[Path, Report]] = []
    with Space.open(app.home) as space:
        for path, session in sessions:
            report = import_session(space, session)
            reports.append((path, report))
            if not app.json:
                _tell(path, report, app.out)
    if app.json:
        app.out.json([{"file": str(path), **report.to_json()} for path, report in reports])


def _tell(path: Path, report: "Report", out: Output) -> None:
    new = f"{report.created} new" if report.created else "nothing new"
    line = (
        f"{field(str(path))}: {report.conversation}, {counted(report.messages, 'message')}, {new}"
    )
    if report.aside:
        line += f", {report.aside} on other branches"
    out.line(line)
    for finding in report.findings[:_NAMED]:
        where = "" if finding.row is None else f"row {finding.row}: "
        out.line(f"! {where}{finding.kind}" + (f" ({finding.note})" if finding.note else ""))
    if len(report.findings) > _NAMED:
        out.line(f"! and {len(report.findings) - _NAMED} more")


@command.command("export", short_help="Write a conversation as a session file.")
@click.argument("conversation")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; - is standard output, the default.",
)
@author_option
@click.pass_obj
def export(app: App, conversation: str, output: Path | None) -> None:
    """Write a conversation as a session file that pi opens (`pi --session FILE`).

    CONVERSATION is its TID, URI or Letta id, or the beginning of one of these if no other
    conversation's begins so. The file is for yourself: no secrets are replaced in it.
    """
    from lettaspace.pi.export import session_lines

    target = None if output is None or str(output) == "-" else output.expanduser()
    with app.open() as space, sink(app, target) as write:
        for line in session_lines(space, conversation):
            write(line)
    if target is not None:
        app.out.line(f"Wrote {field(str(target))}")
