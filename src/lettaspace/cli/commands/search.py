"""`lettaspace search`."""

import click

from lettaspace.atproto.uri import parse_record_uri
from lettaspace.cli import jsonform
from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.text import clip, field
from lettaspace.page.inert import inert


@cataloged("search")
@click.argument("text")
@click.option("--thinking", is_flag=True, help="Look into the models' thinking, too.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="N",
    help="Show at most so many; all are counted.",
)
@author_option
@json_option
@click.pass_obj
def command(app: App, text: str, thinking: bool, limit: int) -> None:
    """Find TEXT in every message, newest first: what was said, tool calls and their results,
    summaries, and what was compacted.

    TEXT is looked for as it stands, letter case aside; no character in it means anything else.
    Messages of other members of the space are found as well, and say whose they are.
    """
    if not text:
        raise click.UsageError("TEXT is empty")
    with app.open() as space:
        found = space.search(text, thinking=thinking, limit=limit, own=app.author is not None)
        if not app.json:
            here = [space, *map(space.member, space.members())]
            titles = {each.uri: each.title for part in here for each in part.conversations()}
        own = space.address.author
    if app.json:
        app.out.json_object(
            {
                "query": text,
                "total": found.total,
                "distinct": found.distinct,
                "unreadable": found.unreadable,
                "hits": map(jsonform.hit, found.hits),
            }
        )
        return
    for hit in found.hits:
        rkey = hit.conversation.rpartition("/")[2]
        title = clip(inert(titles.get(hit.conversation) or "-"), 60)
        status = "" if hit.message.active else "  [compacted]"
        if hit.copy_of is not None:
            status += "  [copy]"
        if (author := parse_record_uri(hit.message.uri).author) != own:
            status += f"  by {author}"
        heading = f"{field(rkey)}  #{hit.message.seq} {field(hit.message.role)}{status}"
        app.out.line(f"{app.out.style(heading, 'bold')}  {field(title)}")
        app.out.line(f"    {field(hit.snippet)}")
    app.out.line(_summary(found.total, len(found.hits), found.total - found.distinct))
    if found.unreadable:
        app.out.line(
            f"{found.unreadable} message(s) could not be read, so they were not searched; "
            "`lettaspace verify` names them."
        )


def _summary(total: int, shown: int, copies: int) -> str:
    if total == 0:
        return "No message has it."
    hits = "1 message has it" if total == 1 else f"{total} messages have it"
    if copies:
        hits += f", {copies} of them in forks as copies"
    return f"{hits}." if shown == total else f"{hits}; shown are the newest {shown}."
