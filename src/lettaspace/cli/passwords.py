"""Passwords on the command line: never in it. And `lettaspace account app-password`."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, json_option
from lettaspace.cli.hosting import accounts, database_option
from lettaspace.cli.render import local_time
from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.server.accounts import AppPassword

password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input, one line."
)


def given_password(from_stdin: bool) -> tuple[str, bool]:
    """The password, and whether it was made up here. Raises InvalidInput."""
    if not from_stdin:
        from lettaspace.server.passwords import new_password

        return new_password(), True
    from lettaspace.errors import InvalidInput

    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True)), False
    try:
        line = sys.stdin.buffer.readline(4096).decode()
    except UnicodeDecodeError:
        raise InvalidInput("the password is not UTF-8") from None
    return line.removesuffix("\n").removesuffix("\r"), False


@click.group(name="app-password", short_help="Passwords for single programs.")
def app_password() -> None:
    """Passwords that one program each signs in with, and that can be taken back.

    A program that has one may read and write the account's own repos; it may not have a look
    at the spaces of others, or change passwords.
    """


@app_password.command("add", short_help="Make one.")
@click.argument("account", metavar="HANDLE")
@click.argument("name")
@database_option
@json_option
@click.pass_obj
def add(app: App, account: str, name: str, database: str | None) -> None:
    """Make an app password and print it, this once. NAME says what it is for."""
    with accounts(app, database) as (_, known):
        password = known.add_app_password(known.get(account), name)
    if app.json:
        app.out.json({"name": name, "password": password})
    else:
        app.out.line(f"The app password {field(name)}, shown this once: {password}")


@app_password.command("list", short_help="List their names.")
@click.argument("account", metavar="HANDLE")
@database_option
@json_option
@click.pass_obj
def list_(app: App, account: str, database: str | None) -> None:
    """List the app passwords of an account by their names."""
    with accounts(app, database) as (_, known):
        found = known.app_passwords(known.get(account))
    if app.json:
        app.out.json_list(map(_form, found))
    else:
        app.out.table(
            ("CREATED", "NAME"),
            [(local_time(_form(each)["createdAt"]), each.name) for each in found],
        )


@app_password.command("remove", short_help="Take one back.")
@click.argument("account", metavar="HANDLE")
@click.argument("name")
@database_option
@json_option
@click.pass_obj
def remove(app: App, account: str, name: str, database: str | None) -> None:
    """Take an app password back, and sign out whoever is in with it."""
    from lettaspace.errors import NotFound

    with accounts(app, database) as (_, known):
        if not known.remove_app_password(known.get(account), name):
            raise NotFound(f"no app password is called {name!r}")
    if app.json:
        app.out.json({"name": name})
    else:
        app.out.line(f"The app password {field(name)} is good no more.")


def _form(each: "AppPassword") -> dict[str, Any]:
    created = datetime.fromtimestamp(each.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"name": each.name, "createdAt": created, "privileged": each.privileged}
