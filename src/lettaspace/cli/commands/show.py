"""`lettaspace show`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from lettaspace.cli import jsonform
from lettaspace.cli.app import App, author_option, cataloged, json_option
from lettaspace.cli.commands.conversations import marks
from lettaspace.cli.render import local_time, message_lines
from lettaspace.cli.text import field

if TYPE_CHECKING:
    from lettaspace.conversation.message import Message
    from lettaspace.conversation.overview import ConversationInfo


@cataloged("show")
@click.argument("conversation")
@click.option(
    "--transcript",
    is_flag=True,
    help="Every message kept, compacted ones before their summary. The default.",
)
@click.option("--window", is_flag=True, help="What the model sees.")
@author_option
@json_option
@click.pass_obj
def command(app: App, conversation: str, transcript: bool, window: bool) -> None:
    """Show a conversation.

    CONVERSATION is its TID, URI or Letta id, or the beginning of one of these if no other
    conversation's begins so.
    """
    if transcript and window:
        raise click.UsageError("--transcript or --window, not both")
    with app.open() as space:
        found = space.conversation_info(conversation)
        messages: Iterable[Message]
        left_out: list[Message] = []
        if window:
            inside = space.window(found.uri)
            messages, left_out = inside.messages, inside.left_out
        else:
            messages = space.transcript(found.uri)
        if app.json:
            fields: dict[str, object] = {
                "conversation": jsonform.conversation(found),
                "messages": map(jsonform.message, messages),
            }
            if window:
                fields["leftOut"] = map(jsonform.left_out, left_out)
            app.out.json_object(fields)
            return
        for line in _heading(found, app):
            app.out.line(line)
        for message in messages:
            for line in message_lines(message, app.out):
                app.out.line(line)
        for message in left_out:
            app.out.line(
                f"left out: #{message.seq} {field(message.role)} {message.rkey} "
                f"({', '.join(message.flags)})"
            )


def _heading(conversation: "ConversationInfo", app: App) -> Iterator[str]:
    yield app.out.style(field(conversation.title or "(no title)", app.out.columns), "bold")
    letta = conversation.letta.get("key") or "-"
    yield f"{conversation.rkey}  {field(str(letta))}"
    yield (
        f"agent {field(conversation.agent.rpartition('/')[2] or '-')}, "
        f"{conversation.messages} messages, {conversation.active} in the window, "
        f"last used {local_time(conversation.updated_at)}"
    )
    if conversation.cwd:
        yield f"worked in {field(conversation.cwd)}"
    if special := marks(conversation):
        yield ", ".join(special)
    for damage in conversation.damage:
        row = f"row {damage['row']}, " if damage.get("row") else ""
        reason = field(f"{damage.get('kind', '')} {damage.get('note', '')}".rstrip())
        yield f"damage: {row}{reason}"
    yield ""
