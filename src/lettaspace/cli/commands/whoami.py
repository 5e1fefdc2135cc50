"""`lettaspace whoami`: who is signed in."""

from typing import TYPE_CHECKING

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.signedin import STATES, State, form, sentences
from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.remote.account import Account


@cataloged("whoami")
@click.option("--offline", is_flag=True, help="Do not ask the host whether the session is good.")
@json_option
@click.pass_obj
def command(app: App, offline: bool) -> int:
    """Say who is signed in, where and how, what the host can do, and whether it still knows the
    session. Exits with 1 if nobody is signed in, or the session has ended.
    """
    from lettaspace.errors import SignedOut
    from lettaspace.remote.account import Account

    account = Account.load(app.home)
    if account is None:
        raise SignedOut("nobody is signed in here; `lettaspace login` does it")
    state = _state(account, offline)
    if app.json:
        app.out.json(form(account, state))
    else:
        app.out.line(f"{field(account.name)}, {account.did}")
        how = "by OAuth" if account.how == "oauth" else "with a password"
        app.out.line(f"signed in to {account.host} {how}")
        app.out.line(STATES[state])
        for sentence in sentences(account):
            app.out.line(sentence)
    return 0 if state in ("good", "kept", "unreachable") else 1


def _state(account: "Account", offline: bool) -> State:
    from lettaspace.errors import HostRefused, SignedOut, Unreachable

    state = account.session().state()
    if offline or state != "kept":
        return state
    from lettaspace.remote.probe import spaces

    try:
        with account.client() as client:
            spaces(client)
        return "good"
    except SignedOut:
        return "ended"
    except Unreachable:
        return "unreachable"
    except HostRefused:
        return "refused"
