"""`lettaspace secrets`."""

from typing import TYPE_CHECKING, Any

import click

from lettaspace.cli.app import App, cataloged, json_option
from lettaspace.cli.progress import steps
from lettaspace.cli.text import counted, field

if TYPE_CHECKING:
    from lettaspace.conversation.secretscan import Finding


@cataloged("secrets")
@click.argument("conversation", required=False)
@json_option
@click.pass_obj
def command(app: App, conversation: str | None) -> None:
    """Say where secrets stand: tokens, passwords, keys, authentication headers.

    Looks through titles, prompts, agents and every message, compacted ones too; or through one
    conversation. Lists places and kinds, never what stands there. Nothing is changed or sent.
    """
    from lettaspace.conversation.secretscan import scan, scan_agents

    # Printed when the progress is gone: on a terminal they would overwrite each other.
    with app.open() as space, steps() as step:
        if conversation is None:
            wanted = space.conversations()
            findings = [*scan_agents(space), *scan(space, wanted, step)]
        else:
            wanted = [space.conversation_info(conversation)]
            findings = list(scan(space, wanted, step))
    messages = sum(each.messages for each in wanted)
    unread = sum(each.place is None for each in findings)
    secrets = len(findings) - unread
    if app.json:
        app.out.json_object(
            {
                "conversations": len(wanted),
                "messages": messages,
                "unreadable": unread,
                "total": secrets,
                "findings": map(_form, findings),
            }
        )
        return
    for each in findings:
        app.out.line(_line(each))
    looked = f"{counted(messages, 'message')} of {counted(len(wanted), 'conversation')}"
    found = counted(secrets, "secret") if secrets else "No secret"
    app.out.line(f"{found} found in {looked}.")
    if unread:
        app.out.line(f"{unread} could not be read; `lettaspace verify` says why.")


def _form(finding: "Finding") -> dict[str, Any]:
    form: dict[str, Any] = {"what": finding.what, "conversation": finding.conversation or None}
    form["rkey"] = finding.rkey
    if finding.seq is not None:
        form |= {"seq": finding.seq, "role": finding.role}
    place = finding.place
    if place is None:
        return form | {"unreadable": True}
    return form | place._asdict()


def _line(finding: "Finding") -> str:
    parts = [field(finding.conversation or finding.rkey)]
    if finding.seq is None:
        parts.append(finding.what)
    else:
        parts.append(f"#{finding.seq} {field(finding.role or '')}")
    place = finding.place
    if place is None:
        parts.append("cannot be read")
    else:
        parts += (f"{field(place.path)}:{place.line}:{place.column}", field(place.kind))
    return "  ".join(parts)
