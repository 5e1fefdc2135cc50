"""One conversation: its window or transcript in pages, what a summary covers, one message."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from lettaspace.conversation.overview import ConversationInfo
from lettaspace.conversation.paging import (
    After,
    Anchor,
    At,
    Before,
    CompactionPoint,
    First,
    From,
    Last,
    Page,
    View,
)
from lettaspace.conversation.records import CONVERSATION_STATE, rkey_of
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.page import images
from lettaspace.page.messages import CUT_ALONE, present
from lettaspace.viewer.site import MessageLinks, Site, path, site

SIZE = 50
"""Messages on a page."""

FOLLOWED = 400
"""Messages that a page may grow to while one looks on."""

POINTS = 40
TICKS = 14


@dataclass(frozen=True, slots=True)
class Turns:
    """Where the other pages are; None where there are none."""

    first: str | None
    before: str | None
    after: str | None
    last: str | None


def conversation(request: Request) -> Response:
    here = site(request)
    version = here.version
    info = here.conversation(request.path_params["rkey"])
    query = request.query_params
    view: View = "window" if query.get("view") == "window" else "transcript"
    anchor = _anchor(query)
    try:
        # What was compacted stands in no window, but a link to it may say so.
        page = _page(here, info, view, anchor)
    except NotFound:
        if view == "transcript":
            raise
        # Whoever follows a window looks on at it, whatever was compacted meanwhile.
        view, anchor = ("window", First()) if isinstance(anchor, From) else ("transcript", anchor)
        page = _page(here, info, view, anchor)
    links = MessageLinks(here, info.rkey, view)
    shown = list(present(page.messages, links, redaction=here.redaction))
    named = None if view == "transcript" else view
    base = {"view": named}
    points = here.space.compactions(info.uri)
    first = page.messages[0].rkey if page.messages else None
    return here.page(
        "conversation.html",
        version=version,
        info=info,
        view=view,
        views={"transcript": path("c", info.rkey), "window": path("c", info.rkey, view="window")},
        agent_key=_key(info.agent),
        agent_name=here.agent_names().get(info.agent) or _key(info.agent) or "no agent",
        state_uri=here.space.address.uri(CONVERSATION_STATE, info.rkey),
        source=_source(here, info),
        parted=list(_parted(here, info)),
        shown=shown,
        turns=_turns(page, ("c", info.rkey), base),
        points=[_point(info, each) for each in points[-POINTS:]],
        more_points=max(0, len(points) - POINTS),
        ticks=list(_ticks(here, info, view, named, page)),
        # The last page follows what is said, from its first message on.
        live_url=path("c", info.rkey, view=named, **({"from": first} if first else {}))
        if page.after is None
        else None,
        damage_line=damage_line,
    )


def covered(request: Request) -> Response:
    """What a summary covers."""
    here = site(request)
    info = here.conversation(request.path_params["rkey"])
    tid = request.path_params["tid"]
    summary = here.space.message(info.uri, tid)
    if summary.compacted_message_ids is None:
        raise NotFound(f"{tid} is no summary")
    anchor = _anchor(request.query_params, First())
    page = here.space.covered(info.uri, tid, anchor=anchor, limit=SIZE)
    links = MessageLinks(here, info.rkey, "transcript")
    return here.page(
        "covered.html",
        info=info,
        summary=summary,
        count=len(summary.compacted_message_ids),
        back=links.message(tid),
        shown=list(present(page.messages, links, redaction=here.redaction)),
        turns=_turns(page, ("c", info.rkey, "covered", tid), {}),
    )


def message(request: Request) -> Response:
    """One message, uncut."""
    here = site(request)
    info = here.conversation(request.path_params["rkey"])
    found = here.space.message(info.uri, request.path_params["tid"])
    links = MessageLinks(here, info.rkey, "transcript")
    covering = here.space.covering(info.uri, found.rkey)
    return here.page(
        "message.html",
        info=info,
        shown=list(present([found], links, redaction=here.redaction, limit=CUT_ALONE)),
        transcript=links.message(found.rkey),
        covering=[{"seq": each.seq, "link": links.message(each.rkey)} for each in covering],
    )


def image(request: Request) -> Response:
    """A picture in a message, from its sealed blob; only what browsers just draw."""
    here = site(request)
    info = here.conversation(request.path_params["rkey"])
    found = here.space.message(info.uri, request.path_params["tid"])
    payload = found.form(images=False)
    content = payload.get("content") if isinstance(payload, dict) else None
    at = request.path_params["part"]
    part = content[at] if isinstance(content, list) and 0 <= at < len(content) else None
    if not isinstance(part, dict) or part.get("type") != "image":
        raise NotFound("no such image")
    data = images.image_bytes(part.get("data"), found.open_blob)
    kind = images.sniffed(data)
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox"}
    if kind is None:
        # SVG, too: a document that may hold scripts is shown as what it is, text.
        return Response(data, media_type="text/plain; charset=utf-8", headers=headers)
    return Response(data, media_type=kind, headers=headers)


def damage_line(finding: Any) -> str:
    """A stored finding in words: what, in which row, the reason."""
    row = finding.get("row")
    words = [str(finding.get("kind", "damage")).replace("-", " ")]
    if row is not None:
        words.append(f"in row {row}")
    reason = finding.get("reason") or finding.get("note")
    return " ".join(words) + (f": {reason}" if reason else "")


def _anchor(query: QueryParams, default: Anchor | None = None) -> Anchor:
    for name, kind in (("at", At), ("from", From), ("before", Before), ("after", After)):
        if tid := query.get(name):
            return kind(tid)
    return First() if "first" in query else default or Last()


def _page(here: Site, info: ConversationInfo, view: View, anchor: Anchor) -> Page:
    limit = FOLLOWED if isinstance(anchor, From) else SIZE
    return here.space.page(info.uri, view=view, anchor=anchor, limit=limit)


def _turns(page: Page, parts: tuple[str, ...], query: Mapping[str, str | None]) -> Turns:
    has_before, has_after = page.before is not None, page.after is not None
    return Turns(
        path(*parts, **query, first=1) if has_before else None,
        path(*parts, **query, before=page.before) if has_before else None,
        path(*parts, **query, after=page.after) if has_after else None,
        path(*parts, **query, **({} if parts[-2] == "c" else {"last": 1})) if has_after else None,
    )


def _point(info: ConversationInfo, point: CompactionPoint) -> dict[str, Any]:
    link = path("c", info.rkey, at=point.rkey) + f"#m-{point.rkey}"
    return {"seq": point.seq, "count": point.covers, "link": link}


def _ticks(
    here: Site, info: ConversationInfo, view: View, named: str | None, page: Page
) -> Iterator[dict[str, Any]]:
    if page.before is None and page.after is None:
        return  # all of it is on this page
    ticks = here.space.ticks(info.uri, view=view, count=TICKS)
    start = page.messages[0].seq if page.messages else 0
    current = max((at for at, each in enumerate(ticks) if each.seq <= start), default=0)
    for at, each in enumerate(ticks):
        link = path("c", info.rkey, view=named, at=each.rkey) + f"#m-{each.rkey}"
        yield {
            "seq": each.seq,
            "at": each.created_at,
            "link": link,
            "current": at == current,
        }


def _source(here: Site, info: ConversationInfo) -> dict[str, str] | None:
    """The message that a fork left from."""
    forked = info.forked_from
    try:
        rkey = rkey_of(str(forked["conversation"]["uri"])) if forked else None
        at = rkey_of(str(forked["message"]["uri"])) if forked else ""
    except (KeyError, TypeError, InvalidInput):
        return None
    found = here.listing.get(rkey) if rkey else None
    if found is None:
        return None
    link = path("c", found.rkey, at=at) + f"#m-{at}"
    return {"title": here.clean(found).title or "Untitled", "link": link}


def _parted(here: Site, info: ConversationInfo) -> Iterator[dict[str, str]]:
    """The conversations that others' messages went to, or came from, when two machines had gone
    on with this one: what is noted of it ends with their TIDs."""
    for each in info.damage:
        if each.get("kind") == "diverged":
            found = here.listing.get(str(each.get("note", "")).rpartition(" ")[2])
            if found is not None:
                title = here.clean(found).title or "Untitled"
                yield {"title": title, "link": path("c", found.rkey)}


def _key(uri: str) -> str:
    return uri.rpartition("/")[2]
