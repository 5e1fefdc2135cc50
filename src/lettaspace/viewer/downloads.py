"""A conversation as a file, without the secrets in it."""

from collections.abc import Callable, Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lettaspace.conversation.redaction import Redactor
from lettaspace.errors import NotFound
from lettaspace.export.document import Document, open_document
from lettaspace.export.html import html
from lettaspace.export.jsonfile import json_document, json_lines
from lettaspace.export.markdown import markdown
from lettaspace.viewer.site import site

FORMS: Mapping[str, tuple[Callable[[Document], Iterator[str]], str]] = {
    "md": (markdown, "text/markdown"),
    "html": (html, "text/html"),
    "json": (json_document, "application/json"),
    "jsonl": (json_lines, "application/jsonl"),
}


def download(request: Request) -> Response:
    """Always redacted: what is to keep its secrets is exported by the command line."""
    here = site(request)
    form = request.path_params["form"]
    if form not in FORMS:
        raise NotFound(f"no form {form}")
    info = here.conversation(request.path_params["rkey"])
    window = request.query_params.get("view") == "window"
    document = open_document(here.space, info.rkey, window=window, redaction=Redactor())
    write, media_type = FORMS[form]
    headers = {
        "Content-Disposition": f'attachment; filename="{info.rkey}.{form}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(write(document), media_type=media_type, headers=headers)
