"""Exports for people: what is in them, and that nothing breaks out of its place."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt

from lettaspace.conversation.space import Space
from lettaspace.export.document import MAX_RESULTS, open_document, turns
from lettaspace.export.markdown import markdown
from tests.conversation.talk import Talk, call, text
from tests.export.conftest import PNG, SECRET, Fake, drop_blobs, state
from tests.letta.build import prompt

HOSTILE = [
    "<script>top.location='//x.example'</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "</details></summary>",
    "# heading\n---\n```never closed",
]


def exported(talk: Talk, **options: Any) -> str:
    return "".join(markdown(open_document(talk.space, talk.rkey, **options)))


def structure(source: str) -> list[str]:
    """The headings of a document, and no others than those at its top."""
    tokens = MarkdownIt("commonmark").parse(source)
    return [
        after.content
        for token, after in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


def test_a_small_conversation(talk: Talk) -> None:
    state(talk, title="Jars")
    talk.add("List the jars.", 1)
    talk.add("2", 2, role="assistant", content=[text("Looking."), call("A1", "ls", {"dir": "j"})])
    talk.add("3", 3, role="toolResult", content=[text("plum\nfig")], toolCallId="A1")
    talk.add("Two jars: **plum** and fig.", 4, role="assistant")
    assert exported(talk).partition("- Begun")[0] == (
        f"# Jars\n\n- Conversation: `{talk.rkey}`\n- Address: `{talk.uri}`\n- Agent: Otter\n"
    )
    assert (
        exported(talk).partition("Secrets: left in\n")[2]
        == """
## #1 User · 2024-03-05 10:00:00 UTC

> List the jars.

## #2 Assistant · 2024-03-05 10:00:00 UTC

> Looking.

**Call** `ls` · `A1`

```json
{"dir":"j"}
```

**Result** · #3 · 2024-03-05 10:00:00 UTC

```text
plum
fig
```

## #4 Assistant · 2024-03-05 10:00:00 UTC

> Two jars: **plum** and fig.
"""
    )


def test_o06_results_stand_with_their_calls(talk: Talk) -> None:
    calls = [call("A", "one"), call("B", "two"), call("C", "three")]
    talk.add("calls", 1, role="assistant", content=calls)
    for number, name in ((2, "C"), (3, "A")):
        fields = {"role": "toolResult", "content": [text(f"from {name}")], "toolCallId": name}
        talk.add(f"result {name}", number, **fields)
    talk.add("stray", 4, role="toolResult", toolCallId="Z")
    source = exported(talk)
    places = [
        source.index(each)
        for each in ("**Call** `one`", "from A", "**Call** `two`", "**Call** `three`", "from C")
    ]
    assert places == sorted(places)
    assert structure(source)[-1] == "#4 Tool result · 2024-03-05 10:00:00 UTC (orphan-result)"
    assert source.count("**Result**") == 2


def test_a_result_elsewhere_stands_by_itself(talk: Talk) -> None:
    talk.add("call", 1, role="assistant", content=[call("A")])
    talk.add("between", 2)
    talk.add("late", 3, role="toolResult", toolCallId="A")
    assert [line.split(" · ")[0] for line in structure(exported(talk))[1:]] == [
        "#1 Assistant", "#2 User", "#3 Tool result",
    ]  # fmt: skip


def test_calls_with_one_id_each_show_their_results_once(talk: Talk) -> None:
    talk.add("calls", 1, role="assistant", content=[call("A"), call("A")])
    talk.add("the result", 2, role="toolResult", toolCallId="A")
    assert exported(talk).count("the result") == 1


def test_compactions_are_marked(talk: Talk) -> None:
    talk.add("one", 1)
    talk.add("two", 2)
    talk.add("inner", 3, covers=["one", "two"])
    talk.add("four", 4)
    talk.add("outer", 5, covers=["inner", "four"])
    talk.add("six", 6)
    source = exported(talk)
    assert "---\n\n**Compaction: #3 summarises 2 messages.**\n\n## #3 Summary" in source
    assert "**Compaction: #5 summarises 2 messages.**" in source
    assert structure(source)[1:] == [
        f"#{number} {label} · 2024-03-05 10:00:00 UTC{mark}"
        for number, label, mark in [
            (1, "User", " (compacted)"),
            (2, "User", " (compacted)"),
            (3, "Summary", " (compacted)"),
            (4, "User", " (compacted)"),
            (5, "Summary", ""),
            (6, "User", ""),
        ]
    ]
    window = exported(talk, window=True)
    assert [line[:2] for line in structure(window)[1:]] == ["#5", "#6"]
    assert "- Shown: the window: what the model sees\n" in window


def test_what_a_model_is_not_given_is_said(talk: Talk) -> None:
    talk.add("stray", 1, role="toolResult", toolCallId="Z")
    window = exported(talk, window=True)
    assert "no model can be given it:\n\n- #1 `" in window
    assert "orphan-result" in window


def test_parts_of_all_kinds(talk: Talk) -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm.\n\n# So", "thinkingSignature": "c2ln"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "c2ln"},
        {"type": "image", "mimeType": "image/png", "data": PNG},
        {"type": "image", "mimeType": "*evil*", "data": "?"},
        {"type": "new", "value": 1.0},
        call("A", "sh", {"big": 9007199254740993}),
    ]
    talk.add("parts", 1, role="assistant", content=parts, stopReason="error")
    source = exported(talk)
    assert "<details><summary>Thinking</summary>\n\n> Hm.\n>\n> # So\n\n</details>" in source
    assert source.count("Thinking") == 1
    assert "*Image: image/png, 70 bytes.*" in source
    assert "*Image: \\*evil\\*, 0 bytes.*" in source
    assert PNG not in source
    assert '```json\n{"type":"new","value":1.0}\n```' in source
    assert "9007199254740993" in source
    assert "(ended in an error)" in source


def test_long_output_is_folded(talk: Talk) -> None:
    talk.add("call", 1, role="assistant", content=[call("A")])
    long = "line\n" * 100
    talk.add("result", 2, role="toolResult", content=[text(long)], toolCallId="A")
    assert "<details><summary>101 lines</summary>\n\n```text\nline\n" in exported(talk)


def test_o19_o21_control_characters_are_visible(talk: Talk) -> None:
    hostile = "a\x00b\x1b]52;c;aGk=\x07\x9b2J\u202etxt.exe\r\u2028x"
    state(talk, title=hostile)
    talk.add(hostile, 1)
    talk.add("call", 2, role="assistant", content=[call(hostile, hostile, {"a": hostile})])
    talk.add("result", 3, role="toolResult", content=[text(hostile)], toolCallId=hostile)
    talk.add("sur\ud800rogate", 4)
    source = exported(talk)
    assert not set(source) & set("\x00\x1b\x07\x9b\u202e\r\u2028\ud800")
    assert source.count("a␀b␛") >= 4
    assert "sur\\ud800rogate" in source
    source.encode()


def test_o48_unknown_formats_are_shown_raw(talk: Talk) -> None:
    other = {"format": "acme.msg", "version": 1, "data": {"a": "word", "b": 1}}
    talk.add("strange", 1, role="obs*er*ver", payload=other)
    source = exported(talk)
    assert "#1 obs\\*er\\*ver · " in source
    assert '`acme.msg` version 1:\n\n```json\n{"a":"word","b":1}\n```' in source


def test_what_cannot_be_read_is_said(talk: Talk) -> None:
    talk.add("before", 1)
    talk.add("clay " * 60_000, 2)
    talk.add("after", 3)
    drop_blobs(talk.space)
    source = exported(talk)
    assert "(unreadable)" in structure(source)[2]
    assert "This message cannot be read: " in source
    assert source.index("> before") < source.index("cannot be read") < source.index("> after")
    redacted = exported(talk, redaction=Fake())
    assert "$bytes" in source
    assert "$bytes" not in redacted
    assert "bafk" not in redacted


def test_o63_hostile_text_breaks_nothing(talk: Talk) -> None:
    for number, said in enumerate(HOSTILE):
        first = number * 4 + 1
        talk.add(f"user {said}", first)
        parts = [
            text(said),
            {"type": "thinking", "thinking": said},
            call(said, said, {said: said}),
            {"type": "image", "mimeType": said, "data": said},
        ]
        talk.add(f"call {said}", first + 1, role="assistant", content=parts)
        fields = {"role": "toolResult", "content": [text(said)], "toolCallId": said}
        talk.add(f"result {said}", first + 2, **fields)
        talk.add(f"role {said}", first + 3, role=said[:60])
    state(talk, title="\n".join(HOSTILE), cwd=HOSTILE[0], tags=HOSTILE)
    source = exported(talk)
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(source)
    html = [each.content.strip() for each in tokens if each.type == "html_block"]
    assert set(html) == {"<details><summary>Thinking</summary>", "</details>"}
    assert html.count("</details>") == html.count("<details><summary>Thinking</summary>")
    inner = [child.type for each in tokens for child in each.children or ()]
    assert not {"html_inline", "image"} & set(inner)
    links = [
        child.attrGet("href")
        for each in tokens
        for child in each.children or ()
        if child.type == "link_open"
    ]
    assert links == []
    assert len(structure(source)) == 1 + 3 * len(HOSTILE)


def test_a_prompt_is_folded_at_the_top(space: Space, talk: Talk) -> None:
    from lettaspace.space.writes import Create

    value = {**prompt(content="```\n<core>"), "agent": talk.agent, "conversation": talk.uri}
    collection = "xyz.quasigod.lab.letta.compiledPrompt"
    space.repo.apply_writes([Create(collection, talk.rkey, value)])
    talk.add("hi", 1)
    folded = "<details><summary>Compiled system prompt</summary>\n\n````text\n```\n<core>\n````\n"
    assert folded in exported(talk)


def test_o45_redacted_where_people_read(talk: Talk) -> None:
    state(talk, title=SECRET, tags=[SECRET], cwd=f"/home/{SECRET}")
    talk.add("1", 1, content=[text(SECRET)])
    talk.add("2", 2, role="assistant", content=[call("A", SECRET, {"key": SECRET})])
    talk.add("3", 3, role="toolResult", content=[text(SECRET)], toolCallId="A")
    assert exported(talk).count(SECRET) == 7
    redacted = exported(talk, redaction=Fake())
    assert SECRET not in redacted
    assert redacted.count("removed") == 7
    assert "- Secrets: replaced where they were found\n" in redacted


def test_no_conversation_is_held_in_memory(talk: Talk) -> None:
    for number in range(1, 301):
        talk.add(f"{number} " + ("clay " * 400 + "\n\n") * 12, number)  # 24 KB each, 7 MB in all
    document = open_document(talk.space, talk.rkey)
    tracemalloc.start()
    try:
        length = sum(map(len, markdown(document)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 7_000_000
    assert most < 2_500_000


def test_a_turn_is_bounded(talk: Talk) -> None:
    talk.add("call", 1, role="assistant", content=[call("A")])
    for number in range(2, MAX_RESULTS + 20):
        talk.add(f"result {number}", number, role="toolResult", toolCallId="A")
    sizes = [len(group) for group in turns(talk.space.transcript(talk.uri))]
    assert max(sizes) == MAX_RESULTS + 1
    assert sum(sizes) == MAX_RESULTS + 19
