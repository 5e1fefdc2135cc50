"""`lettaspace clone`: a space comes to a machine that has nothing of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, exists, json_option
from lettaspace.cli.commands.login import sign_in, sign_in_options
from lettaspace.cli.remote import link_to, words
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space
    from lettaspace.remote.account import Account
    from lettaspace.remote.exchanging import Exchange


@cataloged("clone")
@click.argument("what", metavar="HANDLE|DID|SPACE-URI")
@sign_in_options
@json_option
@click.pass_obj
def command(
    app: App,
    what: str,
    app_password: bool,
    password_stdin: bool,
    user: str | None,
    no_browser: bool,
) -> None:
    """Bring a space to this machine, whose home has none of its own.

    Of a handle or DID it is the account's own space; where nobody is signed in here, that begins
    with signing in, as `lettaspace login` does. The space of somebody else, by its URI or its
    owner's handle, comes with what its members wrote, to be read; what you write in it goes to
    your own host. A clone that was interrupted goes on when it is run again.
    """
    from lettaspace.errors import SignedOut
    from lettaspace.remote.account import Account

    account = Account.load(app.home)
    _require_room(app.home)
    if account is None:
        if what.startswith("at://"):
            raise SignedOut("nobody is signed in here; `lettaspace login HANDLE` says who you are")
        account = sign_in(
            app,
            what,
            app_password=app_password,
            password_stdin=password_stdin,
            user=user,
            no_browser=no_browser,
        )
        space = None
    else:
        space = _space(what, account)
    with _attached(app.home, account, space) as home:
        done = _fetch(home, account)
        held: dict[str, Any] = {
            "agents": len(home.agents()),
            "conversations": len(home.conversations()),
            "members": home.members(),
        }
        ref = str(home.ref)
    if app.json:
        form = {"home": str(app.home), "did": account.did, "space": ref, "host": account.host}
        app.out.json({**form, **held, "remote": done.to_json()})
        return
    for line in words(done, account.host):
        app.out.line(line)
    app.out.line(
        f"The space at {field(str(app.home))} is {field(ref)}: "
        f"{counted(held['conversations'], 'conversation')}, {counted(held['agents'], 'agent')}"
        + (f", and what {counted(len(held['members']), 'other')} wrote" if held["members"] else "")
    )


def _require_room(home: Path) -> None:
    """Raises Conflict for a home that has conversations of its own, before anybody signs in."""
    from lettaspace.conversation.space import STORE_FILE
    from lettaspace.errors import Conflict
    from lettaspace.remote import replicas
    from lettaspace.space.database import Database

    if not exists(home / STORE_FILE):
        return
    with Database.open(home / STORE_FILE, create=False) as store, store.read() as connection:
        if replicas.own(connection) is None and replicas.has_local_records(connection):
            raise Conflict(
                f"the home {home} has conversations of its own: clone into another one "
                "(lettaspace --home DIR ...), or `lettaspace login` and `lettaspace adopt`"
            )


def _space(what: str, account: "Account") -> str:
    """The URI of the space that is meant. Raises InvalidInput, NotFound, Unreachable."""
    from lettaspace.atproto.syntax import is_did
    from lettaspace.atproto.uri import parse_space_ref
    from lettaspace.conversation.records import default_space

    if what.startswith("at://"):
        return str(parse_space_ref(what))
    if what.removeprefix("@").lower() in (account.handle, account.did):
        return str(default_space(account.did))
    if is_did(what):
        return str(default_space(what))
    from lettaspace.remote.signin import find

    place = find(what)
    return str(default_space(place.did or account.did))


def _attached(home: Path, account: "Account", ref: str | None) -> "Space":
    """The home's space, which is the account's now. Raises Conflict for one that is another's, or
    that somebody has written in."""
    from lettaspace.conversation.space import Space
    from lettaspace.remote.replicas import attach

    with Space.open(home) as space:
        attach(space.database, account.did, account.host, space=ref)
    return Space.open(home)


def _fetch(space: "Space", account: "Account") -> "Exchange":
    """All that there is of it. Where it turns out that there is none to be had, the home is left
    as it was."""
    from lettaspace.errors import Damaged, HostRefused, NotFound
    from lettaspace.remote.exchanging import exchange
    from lettaspace.remote.replicas import detach_empty

    try:
        with link_to(space, account) as (link, progress):
            return exchange(link, progress, push=False)
    except (HostRefused, NotFound, Damaged):
        detach_empty(space.database)
        raise
