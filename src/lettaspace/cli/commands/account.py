"""`lettaspace account`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, exists, json_option
from lettaspace.cli.catalog import COMMANDS
from lettaspace.cli.hosting import (
    accounts,
    database_option,
    development_option,
    local,
    origin_option,
    utc,
)
from lettaspace.cli.passwords import app_password, given_password, password_option
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.atproto.keys import SigningKey
    from lettaspace.server.accounts import Account
    from lettaspace.server.removal import Holdings

STATES = ("active", "deactivated", "takendown")
"""As `server.accounts.STATES`, which would take long to import."""


@click.group(name="account", short_help=COMMANDS["account"])
def command() -> None:
    """The accounts of a host: who has repos and spaces here.

    What is done here is done to the host's database, whether or not it is being served.
    Passwords are read from standard input or made up, never taken from the command line.
    """


command.add_command(app_password)


@command.command("add", short_help="Add an account.")
@click.argument("handle")
@click.option("--did", metavar="DID", help="A DID it has already. Default: did:web of the handle.")
@click.option("--no-check", is_flag=True, help="Do not ask whether that DID names this host.")
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The signing key it has already, as `account key` prints it.",
)
@click.option("--p256", is_flag=True, help="Make a P-256 key instead of a secp256k1 one.")
@password_option
@origin_option
@development_option
@database_option
@json_option
@click.pass_obj
def add(
    app: App,
    handle: str,
    did: str | None,
    no_check: bool,
    key_file: Path | None,
    p256: bool,
    password_stdin: bool,
    origin: str | None,
    development: bool,
    database: str | None,
) -> None:
    """Add an account. HANDLE is a host name, such as mira.example.com.

    Its DID is did:web of the handle, which holds once requests to that name reach this host.
    With --did it is one that exists already; its document must name this host at --origin.
    A password is made up and printed once, unless --password-stdin gives one.
    """
    from lettaspace.atproto.keys import SigningKey
    from lettaspace.cli.dids import Published, default_did, look_up
    from lettaspace.errors import InvalidInput
    from lettaspace.server.accounts import check_handle
    from lettaspace.server.config import Config

    handle = check_handle(handle, development=development)
    config = None if origin is None else Config(origin, "", development=development)
    if config is None and did is None and handle.endswith(".localhost"):
        raise InvalidInput(
            "say which port of this machine the host has: --origin http://localhost:PORT"
        )
    own_did = default_did(handle, origin)
    published: Published | None = None
    if did is not None and did != own_did and not no_check:
        published = look_up(did, handle, config)
    if key_file is not None:
        key = _read_key(key_file)
    else:
        key = SigningKey.generate("p256" if p256 else "secp256k1")
    password, made = given_password(password_stdin)
    with accounts(app, database) as (_, known):
        account = known.add(handle, did or own_did, password=password, key=key)
    form: dict[str, Any] = {**_form(account), "key": key.did}
    if published is not None:
        form["published"] = published.key == key.did
    if made:
        form["password"] = password
    if app.json:
        app.out.json(form)
        return
    app.out.line(f"Added {field(account.handle)}: {field(account.did)}")
    app.out.line(f"Its key is {key.did}")
    if form.get("published") is False:
        app.out.line("Its DID document names another key; nothing holds until it names this one.")
    if made:
        app.out.line(f"Its password, shown this once: {password}")


@command.command("list", short_help="List accounts.")
@click.option("--removed", is_flag=True, help="List what was removed instead.")
@database_option
@json_option
@click.pass_obj
def list_(app: App, removed: bool, database: str | None) -> None:
    """List the accounts, by handle."""
    from lettaspace.server.removal import removals

    with accounts(app, database) as (opened, known):
        if removed:
            gone = removals(opened)
        else:
            found = known.all()
    if removed:
        if app.json:
            app.out.json_list(
                {
                    "handle": each.handle,
                    "did": each.did,
                    "removedAt": utc(each.removed_at),
                    "removed": _numbers(each.what),
                }
                for each in gone
            )
        else:
            rows = [(e.handle, e.did, local(e.removed_at), _listed(e.what)) for e in gone]
            app.out.table(("HANDLE", "DID", "REMOVED", "WITH"), rows)
    elif app.json:
        app.out.json_list(map(_form, found))
    else:
        rows = [(each.handle, each.state, local(each.created_at), each.did) for each in found]
        app.out.table(("HANDLE", "STATE", "SINCE", "DID"), rows)


@command.command("remove", short_help="Remove an account and all that is its own, for good.")
@click.argument("name", metavar="HANDLE")
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be removed.")
@database_option
@json_option
@click.pass_obj
def remove(app: App, name: str, yes: bool, database: str | None) -> None:
    """Remove an account, with its repos and everything in them, its spaces, and its key.

    Nothing brings them back. What was removed is noted: `account list --removed`.
    """
    import time

    from lettaspace.errors import InvalidInput
    from lettaspace.server import removal

    with accounts(app, database) as (opened, known):
        account = known.get(name)
        if yes:
            what = removal.remove(opened, account, time.time)
        else:
            what = removal.holdings(opened, account)
    if app.json and yes:
        app.out.json({**_form(account), "removed": _numbers(asdict(what))})
    elif not app.json:
        verb = "Removed" if yes else "Would remove"
        app.out.line(f"{verb} {field(account.handle)} ({field(account.did)}): {_counts(what)}.")
    if not yes:
        raise InvalidInput(f"nothing was removed ({_counts(what)}); --yes removes it for good")


@command.command("state", short_help="Deactivate an account, take it down, or bring it back.")
@click.argument("name", metavar="HANDLE")
@click.argument("state", type=click.Choice(STATES))
@database_option
@json_option
@click.pass_obj
def state(app: App, name: str, state: Any, database: str | None) -> None:
    """Set the state of an account. Nothing of it is removed in any state.

    Of one that is deactivated or taken down others read nothing. Who is taken down cannot
    write or sign in either.
    """
    with accounts(app, database) as (_, known):
        known.set_state(known.get(name), state)
        account = known.get(name)
    if app.json:
        app.out.json(_form(account))
    else:
        app.out.line(f"{field(account.handle)} is {account.state}.")


@command.command("password", short_help="Give an account a new password.")
@click.argument("name", metavar="HANDLE")
@password_option
@database_option
@json_option
@click.pass_obj
def password(app: App, name: str, password_stdin: bool, database: str | None) -> None:
    """Give an account a new password, made up unless --password-stdin gives one.

    Whoever signed in with the old one is signed out. App passwords stay as they are.
    """
    with accounts(app, database) as (_, known):
        account = known.get(name)
        text, made = given_password(password_stdin)
        known.set_password(account, text)
    if app.json:
        app.out.json({**_form(account), **({"password": text} if made else {})})
    elif made:
        app.out.line(f"The password of {field(account.handle)}, shown this once: {text}")
    else:
        app.out.line(f"{field(account.handle)} has a new password.")


@command.command("key", short_help="Print an account's private key, to move it elsewhere.")
@click.argument("name", metavar="HANDLE")
@database_option
@json_option
@click.pass_obj
def key(app: App, name: str, database: str | None) -> None:
    """Print the private signing key of an account, as `account add --key` takes it.

    Whoever has it can sign in that account's name.
    """
    with accounts(app, database) as (_, known):
        account = known.get(name)
        secret = known.signing_key(account.did)
    app.out.json({"did": account.did, "curve": secret.curve, "privateKey": secret.to_bytes().hex()})


@command.command("rekey", short_help="Give an account a new signing key.")
@click.argument("name", metavar="HANDLE")
@click.option("--p256", is_flag=True, help="Make a P-256 key instead of a secp256k1 one.")
@database_option
@json_option
@click.pass_obj
def rekey(app: App, name: str, p256: bool, database: str | None) -> None:
    """Give an account a new signing key, and forget the one it has.

    What the old key signed holds no more as soon as others have the new DID document. This
    host serves the one of a did:web that leads here; any other must be told of the new key.
    """
    from lettaspace.atproto.keys import SigningKey

    made = SigningKey.generate("p256" if p256 else "secp256k1")
    with accounts(app, database) as (_, known):
        account = known.get(name)
        known.set_key(account, made)
    if app.json:
        app.out.json({**_form(account), "key": made.did})
    else:
        app.out.line(f"The key of {field(account.handle)} is now {made.did}")


def _read_key(path: Path) -> "SigningKey":
    from lettaspace.atproto.keys import SigningKey
    from lettaspace.errors import InvalidInput, NotFound

    if not exists(path):
        raise NotFound(f"no file {path}")
    try:
        form = json.loads(path.read_bytes())
        return SigningKey.from_bytes(form["curve"], bytes.fromhex(form["privateKey"]))
    except (OSError, ValueError, KeyError, TypeError, InvalidInput):
        raise InvalidInput(f"{path} does not hold a key as `account key` prints it") from None


def _form(account: "Account") -> dict[str, Any]:
    return {
        "handle": account.handle,
        "did": account.did,
        "state": account.state,
        "createdAt": utc(account.created_at),
    }


def _counts(what: "Holdings") -> str:
    return _listed(asdict(what))


def _numbers(what: dict[str, int]) -> dict[str, int]:
    """As JSON names them."""
    return {name.replace("_p", "P"): number for name, number in what.items()}


def _listed(numbers: dict[str, int]) -> str:
    names = {name: name.replace("_", " ").removesuffix("s") for name in numbers}
    return ", ".join(counted(number, names[name]) for name, number in numbers.items())
