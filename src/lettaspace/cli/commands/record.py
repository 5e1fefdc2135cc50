"""`lettaspace record`."""

import click

from lettaspace.cli import jsonform
from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.text import field, inert_lines


@cataloged("record")
@click.argument("uri")
@json_option
@click.pass_obj
def command(app: App, uri: str) -> None:
    """Show the record at an at:// URI as it is stored, with its CID and its lexicon's verdict."""
    with app.open() as space:
        form = jsonform.record(uri, space.record(uri))
    if app.json:
        app.out.json(form)
        return
    from lettaspace.conversation.jsontext import dumps

    lexicon = form["lexicon"]
    verdicts = {True: "valid", False: "not valid", None: "no lexicon here"}
    app.out.line(f"uri      {field(uri)}")
    app.out.line(f"cid      {form['cid']}")
    verdict = f"{field(lexicon['id'])}: {verdicts[lexicon['valid']]}"
    app.out.line(f"lexicon  {verdict}")
    if "problem" in lexicon:
        app.out.line(f"         {field(lexicon['problem'])}")
    for line in inert_lines(dumps(form["value"], indent=2)):
        app.out.line(line)
