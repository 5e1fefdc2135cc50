"""`lettaspace host`."""

from pathlib import Path

import click

from lettaspace.cli.app import App, exists, json_option
from lettaspace.cli.catalog import COMMANDS
from lettaspace.cli.hosting import accounts, database_option, place
from lettaspace.cli.text import counted, field

_file = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@click.group(name="host", short_help=COMMANDS["host"])
def command() -> None:
    """A host as a whole. What is done here is done to its database."""


@command.command("backup", short_help="Write everything the host has into one file.")
@_file
@database_option
@json_option
@click.pass_obj
def backup(app: App, file: Path, database: str | None) -> None:
    """Write everything the host has into FILE, while it goes on: accounts, records and keys.

    The file is not encrypted. Whoever has it can read everything and sign for everybody.
    """
    from lettaspace.server import backups

    number = backups.save(place(app, database), file)
    size = file.stat().st_size
    if app.json:
        app.out.json({"file": str(file), "accounts": number, "bytes": size})
    else:
        app.out.line(f"{counted(number, 'account')} in {field(str(file))}, {size:,} bytes.")


@command.command("restore", short_help="Make a host out of a backup.")
@_file
@database_option
@json_option
@click.pass_obj
def restore(app: App, file: Path, database: str | None) -> None:
    """Make a host out of a backup, in a database that has nothing in it."""
    from lettaspace.errors import NotFound
    from lettaspace.server import backups

    if not exists(file):
        raise NotFound(f"no file {file}")
    number = backups.restore(file, place(app, database))
    if app.json:
        app.out.json({"file": str(file), "accounts": number})
    else:
        app.out.line(f"{counted(number, 'account')} restored from {field(str(file))}.")


@command.command("sign-out", short_help="End all sessions.")
@click.argument("handle", required=False)
@database_option
@json_option
@click.pass_obj
def sign_out(app: App, handle: str | None, database: str | None) -> None:
    """End all sessions of HANDLE, or of everybody. Passwords stay as they are."""
    with accounts(app, database) as (_, known):
        number = known.sign_out(None if handle is None else known.get(handle))
    if app.json:
        app.out.json({"sessions": number})
    else:
        app.out.line(f"{counted(number, 'session')} ended.")


@command.command("log-name", short_help="What the logs call an account.")
@click.argument("name", metavar="DID")
@database_option
@json_option
@click.pass_obj
def log_name(app: App, name: str, database: str | None) -> None:
    """Say what the logs call an account, here or elsewhere, to find what it did."""
    from lettaspace.server import logs, vault

    with accounts(app, database) as (opened, known):
        account = known.by_handle(name)
        did = name if account is None else account.did
        said = logs.name(did, vault.secret(opened, logs.KEY))
    if app.json:
        app.out.json({"did": did, "name": said})
    else:
        app.out.line(said)
