"""`lettaspace pull`."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.remote import linked, words


@cataloged("pull")
@click.option("--members", is_flag=True, help="What others wrote in the space, too.")
@json_option
@click.pass_obj
def command(app: App, members: bool) -> None:
    """Take what is new at the account's host.

    What others wrote comes as well where the space is another's, or something of theirs is here
    already.
    """
    from lettaspace.remote.exchanging import exchange

    with linked(app) as (link, progress):
        done = exchange(link, progress, push=False, members=members or None)
    if app.json:
        app.out.json({"host": link.host.origin, **done.to_json()})
        return
    for line in words(done, link.host.origin):
        app.out.line(line)
