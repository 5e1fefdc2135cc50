"""`lettaspace logout`: end the session, forget its tokens."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.text import field


@cataloged("logout")
@json_option
@click.pass_obj
def command(app: App) -> None:
    """Sign out: end the session at the host, and forget its tokens here.

    The space on this machine stays as it is. Where the host cannot be reached the tokens are
    forgotten all the same; they end there by themselves.
    """
    from lettaspace.errors import SignedOut
    from lettaspace.remote.account import Account

    account = Account.load(app.home)
    if account is None:
        raise SignedOut("nobody is signed in here")
    why = account.sign_out()
    if app.json:
        app.out.json({"did": account.did, "host": account.host, "ended": why is None})
        return
    app.out.line(f"{field(account.name)} is signed out. The space at {app.home} stays.")
    if why is not None:
        app.out.line(f"The host could not be told ({field(why)}).")
