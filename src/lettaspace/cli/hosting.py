"""What the commands of a host share: where its database is, and how it is reached."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App

if TYPE_CHECKING:
    from lettaspace.server.accounts import Accounts
    from lettaspace.space.database import Database

FILE = "host.db"
"""The database inside the home, unless another one is named."""

database_option = click.option(
    "--database",
    envvar="LETTASPACE_DATABASE",
    metavar="URL",
    help=f"A path, or postgresql://… Default: $LETTASPACE_DATABASE, or {FILE} in the home.",
)

origin_option = click.option(
    "--origin",
    envvar="LETTASPACE_ORIGIN",
    metavar="URL",
    help="How others reach this host: https://NAME. Default: $LETTASPACE_ORIGIN.",
)

development_option = click.option(
    "--development",
    is_flag=True,
    envvar="LETTASPACE_DEVELOPMENT",
    help="Without encryption, on and with this machine alone.",
)


def place(app: App, database: str | None) -> Path | str:
    """What `Database.open` takes."""
    return database or app.home / FILE


@contextmanager
def accounts(app: App, target: str | None) -> Iterator[tuple["Database", "Accounts"]]:
    """A host's database and the accounts in it; both are made where there are none."""
    import time

    from lettaspace.server import tables
    from lettaspace.server.accounts import Accounts
    from lettaspace.space.database import Database

    with Database.open(place(app, target)) as database:
        tables.prepare(database)
        yield database, Accounts(database, time.time)


def utc(seconds: int) -> str:
    """A time of the database, for programs."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def local(seconds: int) -> str:
    """The same for people, in their own time zone."""
    from lettaspace.cli.render import local_time

    return local_time(utc(seconds))
