"""Conversations as a web page in one file, which looks like the viewer.

Nothing in it runs and nothing is fetched, whatever the messages say: there is no script, and
the page's own policy forbids all but its style and the pictures inside it.
"""

import hashlib
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from lettaspace.conversation.message import Message
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.export import jsonform
from lettaspace.export.document import Document, turns, utc
from lettaspace.page.images import image_bytes, sniffed
from lettaspace.page.messages import present
from lettaspace.page.shown import CallPart, Part, Problem, RawPart, Shown
from lettaspace.page.templates import environment

_STYLES = ("style.css", "code.css")
_DRAWN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def html(document: Document) -> Iterator[str]:
    """The file in pieces, a message or more in each."""
    style = _style()
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    found = document.conversation
    shown = {
        "info": found,
        "agent": document.agent_name or found.agent.rpartition("/")[2] or "-",
        "part": document.part,
        "prompt": document.prompt_text,
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "style": Markup(style),  # noqa: S704 - our own files
        "left_out": document.left_out,
        "redacted": document.redaction is not None,
    }
    frame: Any = _environment().get_template("document.html").make_module(shown)
    layout: Any = _environment().get_template("messages.html").module
    page = _Page(document)
    yield str(frame.start())
    for group in turns(document.messages):
        for message in page.shown(group):
            yield str(layout.message(message))
    yield str(frame.end())


class _Page:
    """What a page of a document shows, and where things are in it (`page.messages.Links`)."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def shown(self, group: Sequence[Message]) -> Iterator[Shown]:
        whole = present(group, self, redaction=self.document.redaction, limit=sys.maxsize)
        return map(self._for_others, whole)

    def message(self, rkey: str) -> str | None:
        return f"#m-{rkey}"

    def alone(self, rkey: str) -> str | None:  # noqa: ARG002
        return None

    def record(self, rkey: str) -> str | None:  # noqa: ARG002
        return None

    def covered(self, rkey: str) -> str | None:  # noqa: ARG002
        return None

    def image(self, message: Message, part: int, data: Any) -> str | None:  # noqa: ARG002
        """The picture itself, if browsers only draw it."""
        try:
            content = image_bytes(data, message.open_blob)
        except (Damaged, InvalidInput, NotFound):
            return None
        kind = sniffed(content)
        return f"data:{kind};base64,{b64encode(content).decode()}" if kind in _DRAWN else None

    def _for_others(self, shown: Shown) -> Shown:
        """A message as it looks elsewhere, and without what a redaction must not tell."""
        redaction = self.document.redaction
        shown = replace(
            shown,
            time=utc(shown.at).removesuffix(" UTC"),
            parts=[self._part(part) for part in shown.parts],
        )
        if redaction is None:
            return shown
        shown = replace(shown, version="", label=redaction.text(shown.label))
        if "unreadable" in shown.marks:
            why = jsonform.reason(Damaged(), redaction)
            return replace(shown, parts=[Problem(f"This message cannot be read: {why}.")])
        return shown

    def _part(self, part: Part) -> Part:
        if isinstance(part, RawPart):
            return replace(part, about=self.document.text(part.about))
        if not isinstance(part, CallPart):
            return part
        results = tuple(map(self._for_others, part.results))
        return replace(part, name=self.document.text(part.name), results=results)


@cache
def _environment() -> Environment:
    made = environment("lettaspace.export")
    made.filters["utc"] = utc
    return made


@cache
def _style() -> str:
    static = files("lettaspace.page") / "static"
    return "\n".join((static / name).read_text(encoding="utf-8") for name in _STYLES)
