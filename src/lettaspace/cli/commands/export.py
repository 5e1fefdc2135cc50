"""`lettaspace export`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.cli.sink import sink
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.export.counting import Counting
    from lettaspace.export.document import Document

FORMATS = ("md", "html", "json", "jsonl")


@cataloged("export")
@click.argument("conversation", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Markdown, a web page in one file, one JSON document, or a line of JSON for each message. "
    "Default: what FILE's name ends with, else md.",
)
@click.option("--window", is_flag=True, help="What the model sees. Default: every message kept.")
@click.option("--no-redact", is_flag=True, help="Leave secrets in.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; - is standard output, the default.",
)
@click.option(
    "--space",
    "archive",
    type=click.Path(path_type=Path),
    metavar="FILE.car",
    help="Archive the whole space there instead, with everything in it.",
)
@author_option
@json_option
@click.pass_obj
def command(
    app: App,
    conversation: str | None,
    form: str | None,
    window: bool,
    no_redact: bool,
    output: Path | None,
    archive: Path | None,
) -> None:
    """Export a conversation for somebody else, or archive the whole space.

    CONVERSATION is its TID, URI or Letta id, or the beginning of one of these if no other
    conversation's begins so. Secrets that are found in it are replaced, unless --no-redact
    says otherwise. An archive is for yourself: nothing is left out of it.
    """
    if (conversation is None) == (archive is None):
        raise click.UsageError("a CONVERSATION or --space FILE.car, one of the two")
    if archive is not None:
        if form or window or no_redact or output or app.author:
            raise click.UsageError("--space goes with none of a conversation's options")
        _archive(app, archive.expanduser())
    elif conversation is not None:
        target = None if output is None or str(output) == "-" else output.expanduser()
        _conversation(app, conversation, form or _form_of(target), window, not no_redact, target)


def _conversation(
    app: App, name: str, form: str, window: bool, redact: bool, target: Path | None
) -> None:
    from lettaspace.export.counting import Counting
    from lettaspace.export.document import open_document

    redaction = Counting.secrets() if redact else None
    with app.open() as space:
        document = open_document(space, name, window=window, redaction=redaction)
        rkey = document.conversation.rkey
        with sink(app, target) as write:
            for piece in _writer(form)(document):
                write(piece.encode())
    if target is not None:
        report = {"file": str(target), "format": form, "conversation": rkey}
        if app.json:
            app.out.json({**report, "redacted": redaction.count if redaction else None})
        else:
            app.out.line(f"Wrote {field(str(target))}")
    if redaction is not None:
        _say(redaction, rkey)


def _say(redaction: "Counting", rkey: str) -> None:
    line = "no secrets were found"
    if redaction.count:
        places = counted(redaction.count, "place")
        line = f"redacted {places}; `lettaspace secrets {rkey}` lists them"
    sys.stdout.flush()
    click.echo(f"lettaspace: {line}", err=True)


def _writer(form: str) -> "Callable[[Document], Iterator[str]]":
    if form == "html":
        from lettaspace.export.html import html

        return html
    if form == "md":
        from lettaspace.export.markdown import markdown

        return markdown
    from lettaspace.export.jsonfile import json_document, json_lines

    return json_document if form == "json" else json_lines


def _form_of(target: Path | None) -> str:
    ending = "" if target is None else target.suffix.lower().removeprefix(".")
    return {"htm": "html", "ndjson": "jsonl"}.get(ending, ending if ending in FORMATS else "md")


def _archive(app: App, path: Path) -> None:
    from lettaspace.export.archive import write_archive

    with app.open() as space, steps() as step:
        report = write_archive(space, path, step)
    if app.json:
        app.out.json(report.to_json())
        return
    records = counted(sum(report.records.values()), "record")
    app.out.line(
        f"Archived {records} and {counted(report.blobs, 'blob')} in {field(str(path))}, "
        f"{counted(report.size, 'byte')}"
    )
