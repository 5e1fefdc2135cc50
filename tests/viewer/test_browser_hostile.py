"""O63: whatever stands in whichever field, in a real browser it is shown and does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.conversation.memories import commit, init
from tests.letta.build import (
    AGENT,
    Store,
    at,
    call,
    compaction,
    message,
    prompt,
    rows,
    text,
)
from tests.page.hostile import HOSTILE
from tests.viewer.browser import Look, Looking
from tests.viewer.conftest import Running, Serve, serving

MORE = {
    "leave": "<script>top.location='//x.example'</script>",
    "data": "[a](data:text/html,<script>alert(1)</script>) data:text/html,x",
    "web": "[shown](https://a.example/x) https://b.example mailto:a@b.example",
    "style": '<p style="position:fixed;inset:0">x</p> </style> <link rel=preload href=//x.example>',
    "prefetch": '<link rel="dns-prefetch" href="//x.example"><img srcset="//x.example/a 1x" >',
}
TEXTS = HOSTILE | MORE
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script>'
    '<image href="https://x.example/a.png"/></svg>'
)


def key(number: int) -> str:
    return f"conversation:local-conv-{number}"


def talk(said: str, number: int) -> list[dict[str, Any]]:
    """One text in every field of a conversation."""
    import base64

    more = {"conversation": f"local-conv-{number}", "agent": AGENT}
    picture = {"type": "image", "mimeType": "image/svg+xml"}
    picture["data"] = base64.b64encode(SVG.encode()).decode()
    odd = {"type": "image", "mimeType": said, "data": said}
    # As if it were a picture.
    posing = {"type": "image", "mimeType": "image/png", "data": picture["data"]}
    answer = message(
        2,
        "assistant",
        [
            {"type": "thinking", "thinking": said},
            text(said),
            call(
                said,
                said,
                {said: said, "command": said, "file_path": said, "deep": [{said: [said]}]},
            ),
            {"type": said, said: said},
        ],
        model=said,
        provider=said,
        stopReason=said,
        errorMessage=said,
        **more,
    )
    given = message(
        3, "toolResult", [text(said), odd], toolCallId=said, toolName=said, isError=True, **more
    )
    made = rows(
        [message(1, "user", [text(said), picture, odd, posing], **more), answer, given], cwd=said
    )
    summary = message(4, "user", said, **more)
    made.append(compaction(summary, "e4", "e3", None, 3, 1))
    made[-1]["message"]["metadata"]["compaction"]["stats"]["trigger"] = said
    made.append(
        {
            **rows([message(5, "user", f"<system-reminder>{said}</system-reminder>", **more)])[1],
            "id": "e5",
        }
    )
    return made


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("hostile")
    store = Store(place / "letta")
    every = "\n\n".join(TEXTS.values())
    names = [each for each in TEXTS.values() if "\0" not in each and "/" not in each][:20]
    memory = init(store.path / "memfs" / AGENT / "memory")
    files = {f"{each}.md"[:60]: each for each in names if each.isprintable()}
    files |= {"all.md": f"---\ndescription: {every}\n---\n{every}", "all.py": every, "a.svg": SVG}
    raw = {name: words.encode("utf-8", "replace") for name, words in files.items()}
    commit(memory, {"all.md": b"before"})
    commit(memory, raw)
    store.agent(name=TEXTS["script"], description=every, tags=list(TEXTS.values()), system=every)
    for number, said in enumerate(TEXTS.values(), 1):
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in talk(said, number))
        store.conversation(
            lines,
            window=["ui-msg-4", "ui-msg-5"],
            key=key(number),
            created=at(number),
            summary=said,
            tags=[said],
            prompt=prompt(
                content=f"{said}\n<memory>{said}</memory>", coreMemory=f"<memory>{said}</memory>"
            ),
        )
    with Space.open(place / "home") as space, serving() as start:
        import_directory(space, store.path)
        assert len(space.conversations()) == len(TEXTS)
        yield start(space, letta=store.path)


LINKS = """() => [...document.querySelectorAll("[href], [src], [action], [srcset], [style], *")]
  .flatMap((e) => [...e.attributes].map((a) => [e.localName, a.name, a.value]))
  .filter(([element, name, value]) =>
    name.startsWith("on") || name === "style" || name === "srcset" || name === "ping" ||
    (["href", "src", "action"].includes(name) &&
      !/^(https?:\\/\\/|mailto:|\\/(?!\\/)|#)/.test(value)))
"""
ELEMENTS = """() => [...document.querySelectorAll("main :is("
  + "script, iframe, object, embed, style, link, meta, base, video, form:not([role=search]))")]
  .map((e) => e.outerHTML.slice(0, 100))"""


def does_nothing(here: Look, path: str) -> None:
    page = here.at(path)
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert page.evaluate(LINKS) == []
    assert page.evaluate(ELEMENTS) == []
    assert page.evaluate("document.querySelectorAll('main').length") == 1
    assert here.here == path, "it went elsewhere"
    here.check()


def test_o63_conversations_show_hostile_text_and_it_does_nothing(
    hostile: Running, look: Looking
) -> None:
    here = look(hostile)
    for info in hostile.space.conversations():
        does_nothing(here, f"/c/{info.rkey}")
        title = here.page.title()
        assert title.endswith("· lettaspace")
        assert ("\ufffd" in title) == ("\ufffd" in (info.title or ""))
        # All of what was said stands there, as text.
        shown = here.page.locator(".m.is-user .text").first
        assert shown.inner_text().strip() or not (info.title or "").strip()


def test_o63_every_other_page(hostile: Running, look: Looking) -> None:
    here = look(hostile)
    memory = f"/agents/{AGENT}/memory"
    pages = ["/", "/?page=2", "/agents", f"/agents/{AGENT}", memory, "/usage"]
    pages += [f"{memory}/file?path={name}" for name in ("all.md", "all.py", "a.svg")]
    for query in ("script", "alert(1)", "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E", "%E2%80%AE", "%22"):
        pages.append(f"/search?q={query}&thinking=1")
    for page in pages:
        does_nothing(here, page)
    here.at(memory)
    for link in here.page.locator(f"main a[href*='{memory}/']").evaluate_all(
        "(all) => [...new Set(all.map((e) => e.getAttribute('href')))]"
    )[:8]:
        does_nothing(here, link)
    for info in hostile.space.conversations()[::25]:
        messages = list(hostile.space.transcript(info.uri))
        does_nothing(here, f"/c/{info.rkey}/prompt")
        does_nothing(here, f"/c/{info.rkey}/m/{messages[1].rkey}")
        does_nothing(here, f"/c/{info.rkey}?view=window")
        does_nothing(here, f"/usage?conversation={info.rkey}")
        for uri in (messages[0].uri, messages[1].uri):
            here.at(f"/record?uri={uri}")
            assert here.page.evaluate(LINKS) == []
            assert here.page.evaluate(ELEMENTS) == []


def test_o63_an_svg_is_opened_as_text(hostile: Running, look: Looking) -> None:
    here = look(hostile)
    info = hostile.space.conversations()[0]
    first = next(iter(hostile.space.transcript(info.uri)))
    page = here.at(f"/c/{info.rkey}/m/{first.rkey}/image/1")
    assert page.evaluate("document.contentType") == "text/plain"
    assert "<script>alert(1)</script>" in page.inner_text("body")


def test_o63_what_opens_in_place_does_nothing_either(hostile: Running, look: Looking) -> None:
    here = look(hostile)
    page = here.page
    for info in hostile.space.conversations()[::7]:
        here.at(f"/c/{info.rkey}?view=window")
        page.locator("a[data-open]").click()
        page.locator(".opened .m").first.wait_for()
        assert page.evaluate(LINKS) == []
        assert page.evaluate(ELEMENTS) == []
        here.check()


def test_o63_links_lead_to_the_web_or_to_mail_in_a_page_of_their_own(
    hostile: Running, look: Looking
) -> None:
    here = look(hostile)
    info = next(each for each in hostile.space.conversations() if each.title == MORE["web"])
    page = here.at(f"/c/{info.rkey}")
    links = page.locator(".m.is-user .text a").evaluate_all(
        "(all) => all.map((e) => [e.getAttribute('href'), e.rel, e.target])"
    )
    assert {each[0] for each in links} >= {"https://a.example/x", "https://b.example"}
    for href, rel, target in links:
        assert href.startswith(("https://", "mailto:"))
        assert rel == "noopener noreferrer nofollow"
        assert target == "_blank"


def test_o63_the_trap_springs(hostile: Running, look: Looking) -> None:
    """What the other tests look for would be seen."""
    here = look(hostile)
    page = here.page
    page.evaluate("alert(1)")
    page.evaluate("new Image().src = 'https://x.example/a.png'")
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.evaluate("console.error('oh')")
    page.evaluate("setTimeout(() => { throw new Error('thrown'); })")
    here.until("() => { try { document.body.innerHTML = '<b>'; } catch { return true; } }")
    for sign in (
        "window.alert", "policy: img-src", "policy: style-src-attr", "console: oh", "page: ",
        "policy: require-trusted-types-for", "request: https://x.example",
    ):  # fmt: skip
        assert any(each.startswith(sign) for each in here.told), here.told
    here.told.clear()


def test_o20_titles_that_were_cut_in_an_emoji(space: Space, serve: Serve, look: Looking) -> None:
    said = "a" * 48 + "👩‍🚀👩‍🚀 fix the kiln"
    for limit in (49, 50, 51, 52):
        # As a program cuts that counts UTF-16 code units.
        half = said.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "surrogatepass")
        made = space.create_conversation(
            space.create_agent("Otter"),
            title=half.encode("utf-16", "surrogatepass").decode("utf-16", "ignore"),
        )
        made.append(User.text(said))
    here = look(serve(space))
    for info in space.conversations():
        page = here.at(f"/c/{info.rkey}")
        assert "\ufffd" not in page.content() + page.title()
        assert said in page.inner_text(".messages")
    assert "\ufffd" not in here.at("/").content()


@pytest.mark.parametrize(
    "said", ["\u202etxt.exe", "שלום עולם abc", "\u2067\u202e abc", "عربي (1)", "plain words"]
)
def test_o21_no_text_reorders_its_neighbours(
    space: Space, serve: Serve, look: Looking, said: str
) -> None:
    made = space.create_conversation(space.create_agent(said), title=said)
    made.append(User.text(said))
    here = look(serve(space))

    def left(selector: str) -> float:
        box = here.page.locator(selector).first.bounding_box()
        assert box is not None
        return box["x"]

    page = here.at("/")
    assert left(".list .title a") < left(".list .when")
    columns = page.locator(".list .more > span").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect().x)"
    )
    assert columns == sorted(columns)
    assert columns[0] == left(".list .title")
    here.at(f"/c/{made.rkey}")
    crumbs = page.locator(".crumbs a").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect().x)"
    )
    assert crumbs == sorted(crumbs)
    assert left(".rail .role") < left(".rail .seq") < left(".m .body")
    assert "\u202e" not in page.content()
