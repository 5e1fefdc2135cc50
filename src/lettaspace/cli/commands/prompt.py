"""`lettaspace prompt`."""

from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.render import local_time
from lettaspace.cli.text import field, inert_lines

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space

_FIELDS = ("agent", "content", "coreMemory", "rawSystemHash", "memfsRevision", "compiledAt")


@cataloged("prompt")
@click.argument("conversation")
@json_option
@click.pass_obj
def command(app: App, conversation: str) -> None:
    """Show the compiled system prompt of a conversation, named as for `show`."""
    with app.open() as space:
        found = space.conversation_info(conversation)
        form = _form(space, found.rkey, found.uri)
    if app.json:
        app.out.json(form)
        return
    app.out.line(f"compiled  {local_time(form.get('compiledAt'), seconds=True)}")
    app.out.line(f"template  sha256 {field(str(form.get('rawSystemHash', '-')))}")
    app.out.line(f"memory    revision {field(str(form.get('memfsRevision', '-')))}")
    app.out.line()
    for line in inert_lines(str(form.get("content", ""))):
        app.out.line(line)


def _form(space: "Space", rkey: str, conversation: str) -> dict[str, Any]:
    from lettaspace.errors import NotFound

    record = space.prompt(rkey)
    if record is not None:
        values, oversize = record.value, False
        where = {"rkey": rkey, "uri": space.address.uri(record.collection, rkey)}
        where["cid"] = str(record.cid)
    else:
        oversized = _oversize(space, rkey)
        if oversized is None:
            raise NotFound(f"conversation {rkey} has no compiled prompt")
        values, oversize, where = oversized, True, {"rkey": rkey}
    form: dict[str, Any] = where | {"conversation": conversation}
    form |= {name: values[name] for name in _FIELDS if values.get(name) is not None}
    if oversize:
        form["oversize"] = True
    return form


def _oversize(space: "Space", rkey: str) -> dict[str, Any] | None:
    """A prompt too large for a record of its own stands in the conversation's state."""
    from lettaspace.conversation import codec
    from lettaspace.conversation.records import CONVERSATION_STATE

    state = space.repo.get(CONVERSATION_STATE, rkey)
    envelope = state.value.get("oversizePrompt") if state is not None else None
    if envelope is None:
        return None
    values = codec.decode(envelope["data"], space.repo.get_blob)
    return values if isinstance(values, dict) else None
