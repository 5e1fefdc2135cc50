"""Conversations as JSON: one document, or a line for each message."""

from collections.abc import Iterator

from lettaspace.conversation.jsontext import dumps
from lettaspace.export import jsonform
from lettaspace.export.document import WINDOW, Document
from lettaspace.export.jsonform import Json

FORMAT = "lettaspace.export"
VERSION = 1


def json_lines(document: Document) -> Iterator[str]:
    """A line that says what this is, then a line for each message, in ASCII."""
    yield _line(_header(document))
    for message in document.messages:
        yield _line(jsonform.message(message, document.redaction))
    if document.left_out:
        yield _line({"leftOut": document.left_out})


def json_document(document: Document) -> Iterator[str]:
    """One JSON document with everything in it, in ASCII, each message on a line."""
    start = _text(_header(document) | {"prompt": document.prompt})
    yield f'{start[:-1]},\n"messages":['
    lead = "\n"
    for message in document.messages:
        yield lead + _text(jsonform.message(message, document.redaction))
        lead = ",\n"
    yield "]" if lead == "\n" else "\n]"
    if document.part == WINDOW:
        yield f',\n"leftOut":{_text(document.left_out)}'
    yield "}\n"


def _header(document: Document) -> Json:
    return {
        "format": FORMAT,
        "version": VERSION,
        "redacted": document.redaction is not None,
        "part": document.part,
        "conversation": jsonform.conversation(document.conversation),
        "agentName": document.agent_name,
    }


def _line(value: Json) -> str:
    return _text(value) + "\n"


def _text(value: object) -> str:
    # In ASCII no separator of lines beyond \n is left, and every tool reads it alike.
    return dumps(value, ascii=True)
