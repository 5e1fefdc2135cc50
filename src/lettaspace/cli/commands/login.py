"""`lettaspace login`: sign in to the host of an account."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.passwords import given_password, password_option
from lettaspace.cli.signedin import form, sentences
from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.remote.account import Account
    from lettaspace.remote.signin import Place


F = TypeVar("F", bound=Callable[..., object])


def sign_in_options(command: F) -> F:
    """How to sign in: the options that `sign_in` takes."""
    for option in (
        click.option("--no-browser", is_flag=True, help="Only print the address to open."),
        click.option(
            "--user", metavar="HANDLE", help="Who signs in, where a URL says only the host."
        ),
        password_option,
        click.option(
            "--app-password",
            is_flag=True,
            help="Sign in with a password instead of in the browser.",
        ),
    ):
        command = option(command)
    return command


@cataloged("login")
@click.argument("who", metavar="HANDLE|DID|URL")
@sign_in_options
@json_option
@click.pass_obj
def command(
    app: App,
    who: str,
    app_password: bool,
    password_stdin: bool,
    user: str | None,
    no_browser: bool,
) -> None:
    """Sign in, so that the space can be kept on the account's host too.

    By OAuth: the host asks in the browser whether lettaspace may have your spaces. With
    --app-password the host is shown a password, which is asked for or read from standard input
    (--password-stdin), never given as an argument; an app password cannot read the repos of
    other members.
    """
    account = sign_in(
        app,
        who,
        app_password=app_password,
        password_stdin=password_stdin,
        user=user,
        no_browser=no_browser,
    )
    if app.json:
        app.out.json(form(account, "good"))
        return
    for sentence in sentences(account):
        app.out.line(sentence)


def sign_in(
    app: App,
    who: str,
    *,
    app_password: bool,
    password_stdin: bool,
    user: str | None,
    no_browser: bool,
) -> "Account":
    """Signs in, and says so unless the answer is to be JSON. Raises as `remote.signin` does."""
    from lettaspace.remote.signin import find

    place = find(who)
    if app_password or password_stdin:
        account = _with_password(app, place, user, password_stdin)
    else:
        account = _with_oauth(app, place, user, no_browser)
    if not app.json:
        app.out.line(f"Signed in to {account.host} as {field(account.name)}.")
    return account


def _with_password(app: App, place: "Place", user: str | None, from_stdin: bool) -> "Account":
    from lettaspace.remote.signin import with_password

    name = user or place.handle or place.did
    if not (from_stdin or sys.stdin.isatty()):
        raise click.UsageError("say --password-stdin to give the password on standard input")
    if name is None:
        if from_stdin:
            raise click.UsageError("say with --user who signs in there")
        name = str(click.prompt("Handle or DID", err=True))
    password, _ = given_password(True)
    return with_password(app.home, place, name, password)


def _with_oauth(app: App, place: "Place", user: str | None, no_browser: bool) -> "Account":
    from lettaspace.remote.signin import with_oauth

    def show(url: str) -> None:
        click.echo(f"Open this address to sign in:\n  {url}", err=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(url)

    return with_oauth(app.home, place, show, name=user)
