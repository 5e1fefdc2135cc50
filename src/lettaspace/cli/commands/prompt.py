"""`lettaspace prompt`."""

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.render import local_time
from lettaspace.cli.text import field, inert_lines
from lettaspace.errors import NotFound
from lettaspace.export import jsonform


@cataloged("prompt")
@click.argument("conversation")
@json_option
@click.pass_obj
def command(app: App, conversation: str) -> None:
    """Show the compiled system prompt of a conversation, named as for `show`."""
    with app.open() as space:
        found = space.conversation_info(conversation)
        form = jsonform.prompt(space, found.rkey, found.uri)
    if form is None:
        raise NotFound(f"conversation {found.rkey} has no compiled prompt")
    if app.json:
        app.out.json(form)
        return
    app.out.line(f"compiled  {local_time(form.get('compiledAt'), seconds=True)}")
    app.out.line(f"template  sha256 {field(str(form.get('rawSystemHash', '-')))}")
    app.out.line(f"memory    revision {field(str(form.get('memfsRevision', '-')))}")
    app.out.line()
    for line in inert_lines(str(form.get("content", ""))):
        app.out.line(line)
