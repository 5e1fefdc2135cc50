"""`lettaspace prompt`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, author_option, cataloged, exists, json_option, letta_option
from lettaspace.cli.lettadir import letta_directory
from lettaspace.cli.render import local_time
from lettaspace.cli.text import counted, field, inert_lines
from lettaspace.errors import NotFound
from lettaspace.export import jsonform

if TYPE_CHECKING:
    from lettaspace.conversation.space import Space


@cataloged("prompt")
@click.argument("conversation")
@letta_option
@author_option
@json_option
@click.pass_obj
def command(app: App, conversation: str, letta: Path | None) -> None:
    """Show the compiled system prompt of a conversation, named as for `show`.

    Where Letta's directory is, it also says whether the prompt is stale.
    """
    directory = letta_directory(letta)
    with app.open() as space:
        found = space.conversation_info(conversation)
        form = jsonform.prompt(space, found.rkey, found.uri)
        if form is None:
            raise NotFound(f"conversation {found.rkey} has no compiled prompt")
        if found.recorded and exists(directory):
            form["status"] = _status(space, found.rkey, found.agent, directory)
    if app.json:
        app.out.json(form)
        return
    app.out.line(f"compiled  {local_time(form.get('compiledAt'), seconds=True)}")
    app.out.line(f"template  sha256 {field(str(form.get('rawSystemHash', '-')))}")
    app.out.line(f"memory    revision {field(str(form.get('memfsRevision', '-')))}")
    if "status" in form:
        app.out.line(f"status    {_status_line(form['status'])}")
    app.out.line()
    for line in inert_lines(str(form.get("content", ""))):
        app.out.line(line)


def _status(space: "Space", rkey: str, agent: str, directory: Path) -> dict[str, Any]:
    """How the prompt stands to its template and, where that is on this machine, to memory."""
    from lettaspace.conversation.prompt import prompt_state
    from lettaspace.conversation.records import rkey_of
    from lettaspace.letta.memfs import memory_directory

    memory = memory_directory(directory, rkey_of(agent))
    state = prompt_state(space, rkey, memory=memory)
    form: dict[str, Any] = {"status": state.status.value, "updated": state.updated}
    if state.reason:
        form["reason"] = state.reason
    form["memory"] = str(memory.path) if memory is not None else None
    form["uncommitted"] = list(state.uncommitted)
    form["conflicts"] = list(state.conflicts)
    return form


def _status_line(form: dict[str, Any]) -> str:
    notes = [form["reason"]] if "reason" in form else []
    if form["memory"] is None:
        notes.append("the agent's memory is not here, so only the template was compared")
    if form["updated"]:
        notes.append("updated since it was compiled")
    for name, paths in ("not committed", form["uncommitted"]), ("in conflict", form["conflicts"]):
        if paths:
            notes.append(f"{counted(len(paths), 'file')} {name}")
    return field("; ".join([form["status"], *notes]))
