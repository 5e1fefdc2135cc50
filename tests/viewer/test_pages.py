"""What the pages show, of a real space, as a browser without scripts gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.conversation.payload import AssistantMessage, Image, Text, ToolCall, ToolResult
from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.letta.build import Store, b1, rows
from tests.viewer.conftest import Page, Running, Serve

KILN = "3menokz37mit4"
SUMMARY = "3menp2h3dr7gj"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0"
    "000003010100c9fe92ef0000000049454e44ae426082"
)


def test_the_list_shows_every_conversation_and_leads_to_it(demo: Running) -> None:
    page = demo.page("/")
    assert "4 conversations" in page.text
    assert "Glaze tests for the spring kiln" in page.text
    assert "13 messages window 7 Kiln" in page.text
    # O61: every entry of the list opens.
    for link in page.links("/c/"):
        assert demo.get(link).status_code == 200


def test_agents_lead_to_their_conversations(demo: Running) -> None:
    page = demo.page("/agents")
    assert "Kiln 2 conversations 17 messages" in page.text
    kiln = next(each for each in demo.space.agents() if each.name == "Kiln")
    (link,) = page.links(f"/agents/{kiln.rkey}")
    shown = demo.page(link)
    assert "Glaze tests for the spring kiln" in shown.text
    assert "Why does the shelf planner give 17?" not in shown.text


def test_a_transcript_shows_everything_and_the_window_what_the_model_sees(demo: Running) -> None:
    transcript = demo.page(f"/c/{KILN}")
    expected = [each.rkey for each in demo.space.transcript(demo.space.address.conversation(KILN))]
    assert sorted(transcript.messages()) == sorted(expected)
    window = demo.page(f"/c/{KILN}", view="window")
    kept = demo.space.window(demo.space.address.conversation(KILN)).messages
    assert sorted(window.messages()) == sorted(each.rkey for each in kept)
    assert "Two of the four" in transcript.text
    assert "Two of the four" not in window.text


def test_a_summary_opens_to_what_it_covers_and_back(demo: Running) -> None:
    window = demo.page(f"/c/{KILN}", view="window")
    (link,) = window.links("/covered/")
    covered = demo.page(link)
    message = demo.space.message(demo.space.address.conversation(KILN), SUMMARY)
    assert sorted(covered.messages()) == sorted(message.compacted_message_ids or [])
    back = next(link for link in covered.links(f"#m-{SUMMARY}"))
    assert SUMMARY in demo.page(back).messages()
    # And each of them leads to the summary that replaced it.
    assert covered.links(f"at={SUMMARY}#m-{SUMMARY}")


def test_a_link_to_a_compacted_message_opens_the_transcript(demo: Running) -> None:
    summary = demo.space.message(demo.space.address.conversation(KILN), SUMMARY)
    first = (summary.compacted_message_ids or [""])[0]
    page = demo.page(f"/c/{KILN}", view="window", at=first)
    assert first in page.messages()


def test_results_stand_beside_their_calls(demo: Running) -> None:
    html = demo.page("/c/3mgmzct4q5gka").html
    calls = [Page(each).text for each in html.split('<section class="call')[1:4]]
    assert [("make test" in each, "11 passed" in each) for each in calls] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_thinking_is_folded(demo: Running) -> None:
    html = demo.page(f"/c/{KILN}").html
    assert '<details class="aside"><summary>Thinking</summary>' in html.replace(
        " </summary>", "</summary>"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/c/3mgmzct4q5gk2",
        "/c/..%2f..",
        f"/c/{KILN}?at=3mgmzct4q5gk2",
        f"/c/{KILN}?at=nonsense",
        f"/c/{KILN}?before=%00",
        f"/c/{KILN}/m/nonsense",
        f"/c/{KILN}/covered/3menokz37mit4",
        f"/c/{KILN}/m/{SUMMARY}/image/0",
        f"/c/{KILN}/m/{SUMMARY}/image/99999999999999999999",
        f"/c/{KILN}/m/{SUMMARY}/image/-1",
        f"/c/{KILN}/covered/3menoz54kffiz",
        "/agents/nobody",
        "/record",
        "/record?uri=",
        "/record?uri=at://did:key:zzz/space/x/self/a/b/c",
        "/record?uri=" + "a" * 5000,
    ],
)
def test_what_does_not_exist_is_answered_alike(demo: Running, path: str) -> None:
    answer = demo.get(path)
    assert answer.status_code == 404
    assert answer.text == demo.get("/nothing").text


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30, "٣", "1e3", ""])
def test_strange_page_numbers_are_the_first_or_last_page(demo: Running, number: str) -> None:
    assert demo.get("/", page=number).status_code == 200
    assert demo.get("/search", q="celadon", page=number).status_code == 200


def test_a_record_is_shown_decoded_and_stored(demo: Running) -> None:
    uri = demo.space.address.uri("xyz.quasigod.lab.letta.message", SUMMARY)
    page = demo.page("/record", uri=uri)
    record = demo.space.record(uri)
    assert uri in page.text
    assert str(record.cid) in page.text
    assert "xyz.quasigod.lab.letta.message valid" in page.text
    assert "compactedMessageIds" in page.text
    assert page.text.count("Shino crawls") == 2 * page.text.split("Stored")[1].count("Shino crawls")
    assert any(f"/c/{KILN}/m/{SUMMARY}" in link for link in page.links("/c/"))


def test_images_come_out_of_their_blobs(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    sent = talk.append(
        User([Text("look"), Image.of(PNG, "text/html"), Image.of(svg, "image/svg+xml")])
    )
    here = serve(space)
    page = here.page(f"/c/{talk.rkey}")
    (source,) = (attrs["src"] or "" for tag, attrs in page.tags if tag == "img")
    assert f"/m/{sent.rkey}/image/1" in source
    assert "<script>alert(1)</script>" in page.text  # as text
    picture = here.get(source)
    assert picture.content == PNG
    # By what it is, not by what the message says.
    assert picture.headers["content-type"] == "image/png"
    document = here.get(source.removesuffix("1") + "2")
    assert document.headers["content-type"] == "text/plain; charset=utf-8"
    assert document.content == svg
    for answer in (picture, document):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_lead_through_a_long_conversation(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"), title="Long")
    tids = [talk.append(User.text(f"number {at}")).rkey for at in range(130)]
    here = serve(space)
    page = here.page(f"/c/{talk.rkey}")
    assert page.messages() == tids[-50:]
    seen: list[str] = []
    while True:
        seen = page.messages() + seen
        earlier = page.links("before=")
        if not earlier:
            break
        page = here.page(earlier[0])
    assert seen == tids
    first = here.page(here.page(f"/c/{talk.rkey}").links("first=")[0])
    assert first.messages() == tids[:50]
    middle = here.page(f"/c/{talk.rkey}", at=tids[64])
    assert tids[64] in middle.messages()
    assert middle.links("before=")
    assert middle.links("after=")


def test_long_output_is_folded_and_huge_output_cut(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    call = ToolCall("c1", "run", {"command": "seq 30000"})
    talk.append(AssistantMessage([call], stop_reason="toolUse"))
    output = "\n".join(map(str, range(30_000))) + "\nthe very end"
    sent = talk.append(ToolResult.of(call, output))
    here = serve(space)
    page = here.page(f"/c/{talk.rkey}")
    assert '<details class="long"><summary>30,001 lines</summary>' in page.html
    assert "the very end" not in page.text
    (link,) = [link for link in page.links(f"/m/{sent.rkey}") if "image" not in link]
    assert "the very end" in here.page(link).text


def test_badges_say_what_is_the_matter(space: Space, serve: Serve, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    directory = store.conversation(rows(b1()))
    with (directory / "messages.jsonl").open("ab") as file:
        file.write(b'{"type":"message", broken\n')
    import_directory(space, store.path)
    (info,) = space.conversations()
    source = space.conversation(info.rkey)
    source.fork()
    here = serve(space)
    text = here.page("/").text
    assert "incomplete" in text
    assert "fork" in text
    assert "finding" in here.page(f"/c/{info.rkey}").text


def test_unknown_formats_are_shown_raw(space: Space, serve: Serve) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    talk.append({"any": ["thing", 1.5]}, role="user", format="acme.msg", version=3)
    page = serve(space).page(f"/c/{talk.rkey}")
    assert "Format acme.msg, version 3, is not known here." in page.text
    assert '"any"' in page.text
    assert "1.5" in page.text
    assert "unknown-format" in page.text


def test_an_empty_space_says_so(space: Space, serve: Serve) -> None:
    here = serve(space)
    assert "No conversations yet" in here.page("/").text
    assert "No agents yet" in here.page("/agents").text


def test_what_was_written_meanwhile_is_shown(space: Space, serve: Serve) -> None:
    here = serve(space)
    assert "No conversations yet" in here.page("/").text
    talk = space.create_conversation(space.create_agent("Otter"), title="Fresh")
    assert "Fresh" in here.page("/").text
    talk.append(User.text("just said"))
    assert "1 message window 1" in here.page("/").text
    assert "just said" in here.page(f"/c/{talk.rkey}").text


@pytest.mark.parametrize("form", ["md", "html", "json", "jsonl"])
def test_o45_downloads_are_redacted(space: Space, serve: Serve, form: str) -> None:
    secret = "ghp_" + "E" * 36
    talk = space.create_conversation(space.create_agent("Otter"), title=f"about {secret}")
    talk.append(User.text(f"keep {secret} for me"))
    here = serve(space)
    (link,) = here.page(f"/c/{talk.rkey}").links(f"export.{form}")[:1]
    answer = here.get(link)
    assert answer.status_code == 200
    assert "for me" in answer.text
    assert secret not in answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{talk.rkey}.{form}"'


def test_there_are_no_other_forms(demo: Running) -> None:
    assert demo.get(f"/c/{KILN}/export.exe").status_code == 404
    assert demo.get("/c/nothing/export.md").status_code == 404


def test_a_conversation_without_a_title_is_called_by_its_first_words(
    space: Space, serve: Serve
) -> None:
    talk = space.create_conversation(space.create_agent("Otter"))
    here = serve(space)
    assert "Untitled" in here.page("/").text
    talk.append(User.text("Fix the kiln " + "please " * 30))
    for path in ("/", f"/c/{talk.rkey}", "/search?q=kiln"):
        assert "Fix the kiln please" in here.page(path).text
        assert "Untitled" not in here.page(path).text
