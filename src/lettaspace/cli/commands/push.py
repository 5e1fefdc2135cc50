"""`lettaspace push`."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.remote import linked, words


@cataloged("push")
@click.option(
    "--again", is_flag=True, help="Forget what the host has, and give it all that it lacks."
)
@json_option
@click.pass_obj
def command(app: App, again: bool) -> None:
    """Give the account's host what is new here.

    --again is for a host that has lost everything: what it has is looked at anew, and whatever
    it lacks goes there, what was deleted there as well.
    """
    from lettaspace.remote.exchanging import exchange

    with linked(app, create=False) as (link, progress):
        if again:
            link.syncer().start_over()
        done = exchange(link, progress, pull=again, members=False)
    if app.json:
        app.out.json({"host": link.host.origin, "again": again, **done.to_json()})
        return
    for line in words(done, link.host.origin):
        app.out.line(line)
