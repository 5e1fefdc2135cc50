"""Search over everything that was ever said."""

import re
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from lettaspace.atproto.uri import parse_record_uri
from lettaspace.conversation.space import Found, Hit
from lettaspace.viewer.site import Site, numbered, page_number, path, site

SIZE = 50
"""Hits on a page."""

MAX_QUERY = 1_000
"""Characters."""


def search(request: Request) -> Response:
    here = site(request)
    query = request.query_params.get("q", "")[:MAX_QUERY]
    thinking = request.query_params.get("thinking") == "1"
    if not query.strip():
        return here.page("search.html", section="search", query="", thinking=thinking)
    start = (page_number(request) - 1) * SIZE
    found = here.space.search(
        query, thinking=thinking, start=max(0, min(start, 1 << 40)), limit=SIZE
    )
    _, address = numbered(request, found.total, SIZE)
    return here.page(
        "search.html",
        section="search",
        query=query,
        thinking=thinking,
        outcome=outcome(found),
        unreadable=found.unreadable,
        hits=[_hit(here, each, query) for each in found.hits],
        pager=address.pager(found.hits),
    )


def outcome(found: Found) -> str:
    """How many there are, in words."""
    if found.total == 0:
        return "No message has it."
    said = "1 message has it" if found.total == 1 else f"{found.total:,} messages have it"
    if copies := found.total - found.distinct:
        said += f", {copies:,} of them in forks as copies"
    return said + "."


def pieces(snippet: str, query: str) -> Iterator[tuple[str, bool]]:
    """A snippet in pieces; True for those that are what was looked for."""
    at = 0
    for match in re.finditer(re.escape(query.strip()) or "(?!)", snippet, re.IGNORECASE):
        if match.start() > at:
            yield snippet[at : match.start()], False
        yield match[0], True
        at = match.end()
    if at < len(snippet):
        yield snippet[at:], False


def _hit(here: Site, hit: Hit, query: str) -> dict[str, object]:
    rkey = hit.conversation.rpartition("/")[2]
    message = hit.message
    author = parse_record_uri(message.uri).author
    own = author == here.space.address.author
    info = here.listing.get(rkey) if own else None
    snippet = hit.snippet if here.redaction is None else here.redaction.text(hit.snippet)
    marks = [] if message.active else ["compacted"]
    if hit.copy_of is not None:
        marks.append("copy")
    if not own:
        marks.append(f"by {author}")
    summary = message.compacted_message_ids is not None
    link = path("c", rkey, at=message.rkey) + f"#m-{message.rkey}"
    return {
        "link": link if own else path("record", uri=message.uri),
        "title": (here.clean(info).title if info else None) or "Untitled",
        "seq": message.seq,
        "role": "summary" if summary else message.role,
        "at": message.created_at,
        "marks": marks,
        "pieces": list(pieces(snippet, query)),
    }
