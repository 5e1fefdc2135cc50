"""`lettaspace import`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, cataloged, exists, json_option
from lettaspace.cli.output import Output
from lettaspace.cli.progress import steps
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.export.restore import RestoreReport

_NAMED = 10
"""So many conversations are named in a line; JSON has all of them."""


@cataloged("import")
@click.argument("archive", type=click.Path(path_type=Path), metavar="FILE.car")
@click.option("--dry-run", is_flag=True, help="Store nothing; say what would be stored.")
@json_option
@click.pass_obj
def command(app: App, archive: Path, dry_run: bool) -> None:
    """Bring the archive of a whole space in, as `export --space` wrote it.

    The file is checked from end to end before anything is stored. What is here already stays;
    nothing is deleted. An archive of another author becomes your own: put its identity.json into
    the new home first if you mean to go on as that author.
    """
    from lettaspace.conversation.space import Space
    from lettaspace.export.archive import open_archive
    from lettaspace.export.restore import restore

    path = archive.expanduser()
    with steps() as step, open_archive(path, step) as opened:
        opening: AbstractContextManager[Space] = (
            _scratch(app.home) if dry_run and _is_new(app.home) else Space.open(app.home)
        )
        with opening as space:
            report = restore(space, opened, dry_run=dry_run, progress=step)
    if app.json:
        app.out.json({"archive": str(path), **report.to_json()})
    else:
        _summarise(report, path, app.out)


def _is_new(home: Path) -> bool:
    from lettaspace.conversation.space import STORE_FILE

    return not exists(home / STORE_FILE)


@contextmanager
def _scratch(home: Path) -> "Iterator[Space]":
    """An empty space for a dry run: one at home would have an identity from then on."""
    from tempfile import TemporaryDirectory

    from lettaspace.conversation.space import IDENTITY_FILE, STORE_FILE, Space
    from lettaspace.space.database import Database
    from lettaspace.space.identity import Identity

    with TemporaryDirectory() as name:
        place = Path(name)
        own = home / IDENTITY_FILE
        identity = Identity.open(own if exists(own) else place / IDENTITY_FILE)
        with Space(place, identity, Database.open(place / STORE_FILE)) as space:
            yield space


def _summarise(report: "RestoreReport", path: Path, out: Output) -> None:
    from lettaspace.conversation.records import NAMESPACE

    out.line(f"{'Would import' if report.dry_run else 'Imported'} {field(str(path))}")
    out.table(
        ["", "CREATED", "UPDATED", "UNCHANGED", "KEPT", ""],
        [
            (
                name.removeprefix(f"{NAMESPACE}."),
                counts.created,
                counts.updated,
                counts.unchanged,
                counts.kept,
                "",
            )
            for name, counts in report.collections.items()
        ],
    )
    if report.readdressed:
        out.line(
            f"They were records of {field(report.author)}; here they are this space's own, and "
            "name each other so."
        )
    for rkeys, what in (
        (report.kept_conversations, "recorded otherwise in the archive; what is here stays"),
        (report.mixed_conversations, "with messages of both; `verify` names shared seqs"),
    ):
        if rkeys:
            named = ", ".join(map(field, rkeys[:_NAMED])) + (", ..." if rkeys[_NAMED:] else "")
            out.line(f"! {counted(len(rkeys), 'conversation')} {what}: {named}")
