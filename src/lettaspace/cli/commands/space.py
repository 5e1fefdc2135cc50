"""`lettaspace space`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, json_option
from lettaspace.cli.catalog import COMMANDS
from lettaspace.cli.hosting import accounts, database_option, local, utc
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.server.accounts import Accounts
    from lettaspace.server.policies import AppAccess, Policy, Settings
    from lettaspace.server.spaces import Space, Spaces

POLICY = "public, members, or the DID of a managing app's service"

read_option = click.option("--read", "read", metavar="POLICY", help=f"Who may read: {POLICY}.")
write_option = click.option("--write", "write", metavar="POLICY", help=f"Who may write: {POLICY}.")
app_option = click.option(
    "--app", "apps", multiple=True, metavar="CLIENT_ID", help="Open to this app only; repeatable."
)


@click.group(name="space", short_help=COMMANDS["space"])
def command() -> None:
    """The spaces of a host's accounts: who they are open to, and their members.

    What is done here is done to the host's database, whether or not it is being served. URI is
    that of a space: at://DID/space/TYPE/KEY.
    """


@command.command("list", short_help="List spaces.")
@click.option("--account", "name", metavar="HANDLE", help="Only those of this account.")
@click.option("--deleted", is_flag=True, help="List what is left of deleted ones instead.")
@database_option
@json_option
@click.pass_obj
def list_(app: App, name: str | None, deleted: bool, database: str | None) -> None:
    """List the spaces whose authority is an account here, by URI."""
    with _opened(app, database) as (spaces, known):
        authority = None if name is None else known.get(name).did
        found = spaces.all(authority, deleted=deleted)
    if app.json:
        app.out.json_list(map(_form, found))
        return
    rows = [
        (*_words(each.settings), local(each.deleted_at or each.created_at), each.uri)
        for each in found
    ]
    app.out.table(("READ", "WRITE", "APPS", "DELETED" if deleted else "SINCE", "URI"), rows)


@command.command("show", short_help="Show a space.")
@click.argument("uri")
@database_option
@json_option
@click.pass_obj
def show(app: App, uri: str, database: str | None) -> None:
    """Show a space, with the number of its members."""
    with _opened(app, database) as (spaces, _):
        space = spaces.get(uri)
        members = len(spaces.members(uri))
    if app.json:
        app.out.json({**_form(space), "members": members})
    else:
        _tell(app, space)
        app.out.line(counted(members, "member"))


@command.command("create", short_help="Create a space.")
@click.argument("name", metavar="HANDLE")
@click.option("--type", "type_", required=True, metavar="NSID", help="Its type.")
@click.option("--key", "skey", default="self", metavar="KEY", help="Its key. Default: self.")
@read_option
@write_option
@app_option
@database_option
@json_option
@click.pass_obj
def create(
    app: App,
    name: str,
    type_: str,
    skey: str,
    read: str | None,
    write: str | None,
    apps: tuple[str, ...],
    database: str | None,
) -> None:
    """Create a space whose authority is the account HANDLE.

    Without more it is open to its members, who are none at first, and to any app.
    """
    from lettaspace.atproto.uri import SpaceRef
    from lettaspace.server.policies import AppAccess, MemberList, Settings

    settings = Settings(
        _policy(read) if read else MemberList(),
        _policy(write) if write else MemberList(),
        _access(apps) if apps else AppAccess(),
    )
    with _opened(app, database) as (spaces, known):
        space = spaces.create(SpaceRef(known.get(name).did, type_, skey), settings)
    if app.json:
        app.out.json(_form(space))
    else:
        _tell(app, space)


@command.command("policy", short_help="Say who a space is open to.")
@click.argument("uri")
@read_option
@write_option
@app_option
@click.option("--any-app", is_flag=True, help="Open to every app again.")
@database_option
@json_option
@click.pass_obj
def policy(
    app: App,
    uri: str,
    read: str | None,
    write: str | None,
    apps: tuple[str, ...],
    any_app: bool,
    database: str | None,
) -> None:
    """Change who a space is open to. What is not named stays as it is."""
    from lettaspace.errors import InvalidInput
    from lettaspace.server.policies import AppAccess, Settings

    if apps and any_app:
        raise InvalidInput("--app and --any-app exclude each other")

    def changed(settings: Settings) -> Settings:
        return Settings(
            _policy(read) if read else settings.read,
            _policy(write) if write else settings.write,
            AppAccess() if any_app else _access(apps) if apps else settings.apps,
        )

    with _opened(app, database) as (spaces, _):
        space = spaces.change(uri, changed)
    if app.json:
        app.out.json(_form(space))
    else:
        _tell(app, space)


@command.command("delete", short_help="Delete a space and its authority's repo in it, for good.")
@click.argument("uri")
@click.option("--yes", is_flag=True, help="Do it; without, only say what it is.")
@database_option
@json_option
@click.pass_obj
def delete(app: App, uri: str, yes: bool, database: str | None) -> None:
    """Delete a space: its settings and members, and all that its authority wrote in it.

    What others wrote stays theirs. A tombstone says to whoever asks that the space is gone;
    services that follow it hear so when they ask next.
    """
    from lettaspace.errors import InvalidInput

    with _opened(app, database) as (spaces, _):
        space = spaces.get(uri)
        if not yes:
            raise InvalidInput(f"nothing was deleted; --yes deletes {uri} for good")
        spaces.delete(uri)
    if app.json:
        app.out.json(_form(space))
    else:
        app.out.line(f"Deleted {field(uri)}.")


@command.command("members", short_help="List the members of a space.")
@click.argument("uri")
@database_option
@json_option
@click.pass_obj
def members(app: App, uri: str, database: str | None) -> None:
    """List the members of a space, by DID. Its authority is none, and may do everything."""
    with _opened(app, database) as (spaces, _):
        spaces.get(uri)
        found = spaces.members(uri)
    if app.json:
        app.out.json_list({"did": m.did, "read": m.read, "write": m.write} for m in found)
    else:
        rows = [(_yes(m.read), _yes(m.write), m.did) for m in found]
        app.out.table(("READ", "WRITE", "DID"), rows)


@command.command("admit", short_help="Make somebody a member, or change their rights.")
@click.argument("uri")
@click.argument("who", metavar="DID")
@click.option("--read/--no-read", default=True, help="Whether they may read. Default: yes.")
@click.option("--write/--no-write", default=True, help="Whether they may write. Default: yes.")
@database_option
@json_option
@click.pass_obj
def admit(app: App, uri: str, who: str, read: bool, write: bool, database: str | None) -> None:
    """Make somebody a member of a space: a DID, or the handle of an account here."""
    from lettaspace.server.spaces import Member

    with _opened(app, database) as (spaces, known):
        member = Member(_did(known, who), read, write)
        spaces.put_member(uri, member)
    if app.json:
        app.out.json({"did": member.did, "read": read, "write": write})
    else:
        app.out.line(f"{field(member.did)}: read {_yes(read)}, write {_yes(write)}.")


@command.command("dismiss", short_help="Remove a member.")
@click.argument("uri")
@click.argument("who", metavar="DID")
@database_option
@json_option
@click.pass_obj
def dismiss(app: App, uri: str, who: str, database: str | None) -> None:
    """Remove a member. A credential that they have is good until it expires."""
    from lettaspace.errors import NotFound

    with _opened(app, database) as (spaces, known):
        did = _did(known, who)
        if not spaces.remove_member(uri, did):
            raise NotFound(f"{did} is no member of {uri}")
    if app.json:
        app.out.json({"did": did})
    else:
        app.out.line(f"{field(did)} is no member any more.")


@contextmanager
def _opened(app: App, database: str | None) -> Iterator[tuple["Spaces", "Accounts"]]:
    import time

    from lettaspace.server.spaces import Spaces

    with accounts(app, database) as (opened, known):
        yield Spaces(opened, time.time), known


def _did(known: "Accounts", who: str) -> str:
    from lettaspace.atproto.syntax import is_did

    return who if is_did(who) else known.get(who).did


def _policy(word: str) -> "Policy":
    from lettaspace.errors import InvalidInput
    from lettaspace.server.policies import ManagingApp, MemberList, Public, is_service

    if word in ("public", "members"):
        return Public() if word == "public" else MemberList()
    if not is_service(word):
        raise InvalidInput(f"a policy is {POLICY}")
    return ManagingApp(word)


def _access(apps: tuple[str, ...]) -> "AppAccess":
    from lettaspace.errors import InvalidInput
    from lettaspace.server import policies
    from lettaspace.server.errors import XrpcError

    try:
        return policies.access(policies.AppAccess(apps).form)
    except XrpcError as error:
        raise InvalidInput(error.message) from None


def _tell(app: App, space: "Space") -> None:
    read, write, apps = _words(space.settings)
    app.out.line(app.out.style(field(space.uri), "bold"))
    app.out.line(f"Read: {field(read)}, write: {field(write)}, apps: {field(apps)}")


def _words(settings: "Settings") -> tuple[str, str, str]:
    """Who may read, who may write, and which apps."""
    from lettaspace.server.policies import ManagingApp, Public

    def word(policy: "Policy") -> str:
        if isinstance(policy, ManagingApp):
            return policy.service
        return "public" if isinstance(policy, Public) else "members"

    allowed = settings.apps.allowed
    apps = "any" if allowed is None else ", ".join(allowed) or "none"
    return word(settings.read), word(settings.write), apps


def _form(space: "Space") -> dict[str, Any]:
    deleted = {} if space.deleted_at is None else {"deletedAt": utc(space.deleted_at)}
    return {
        "uri": space.uri,
        **space.settings.form,
        "createdAt": utc(space.created_at),
        **deleted,
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"
