"""Search means what a substring scan means, over everything that was ever said."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.search import SearchIndex, fold, indexed, snippet
from lettaspace.conversation.space import Space
from lettaspace.space.projection import rebuild
from tests.conversation.talk import Talk, call, text


def hits(space, query, **options):
    return [hit.message.rkey for hit in space.search(query, **options).hits]


@pytest.fixture(params=[False, True], ids=["waiting", "indexed"])
def indexing(request, monkeypatch):
    """Runs a test with texts that wait for the index, and with all of them in it."""
    monkeypatch.setattr("lettaspace.conversation.search._BATCH", 1 if request.param else 10**6)


def test_o38_text_without_spaces(space, talk, indexing):
    talk.add("昨晚重跑ingest后清零", 1)
    talk.add("半夜", 2)
    assert [len(hits(space, query)) for query in ("昨晚", "清零", "ingest", "半夜", "夜")] == [
        1
    ] * 5
    assert hits(space, "重跑ingest后") == [talk.tids["昨晚重跑ingest后清零"]]
    assert hits(space, "夜半") == []


@pytest.mark.parametrize(
    "query", ["don't", "POL-358", "a::b", 'say "hi"', "50% (net)*", "AND", "NEAR(x", "x OR y"]
)
def test_o39_characters_of_a_query_are_text(space, talk, indexing, query):
    talk.add("nothing of the kind", 1)
    talk.add(f"well, {query}!", 2)
    assert hits(space, query) == [talk.tids[f"well, {query}!"]]


def test_o39_a_lone_quote_is_no_error(space, talk, indexing):
    talk.add('say "hi"', 1)
    talk.add("plain", 2)
    assert hits(space, '"') == [talk.tids['say "hi"']]
    assert hits(space, "") == []
    assert hits(space, "%") == hits(space, "*") == hits(space, "_") == []


def test_o40_everything_said_is_searched(space, talk, indexing):
    talk.add("argument", 1, role="assistant", content=[call("c1", "ls", {"dir": ["the Quartz"]})])
    talk.add("result", 2, role="toolResult", toolCallId="c1", content=[text("a basalt column")])
    talk.add("compacted", 3, content=[text("old gneiss")], status="compacted")
    talk.add(
        "summary",
        4,
        content=[text("alert")],
        covers=["compacted"],
        metadata={"compaction": {"summary": "about flint"}},
    )
    talk.add("thinking", 5, role="assistant", content=[{"type": "thinking", "thinking": "chert?"}])
    for query, name in [
        ("quartz", "argument"),
        ("BASALT", "result"),
        ("gneiss", "compacted"),
        ("flint", "summary"),
    ]:
        (hit,) = space.search(query).hits
        assert (hit.message.rkey, hit.conversation) == (talk.tids[name], talk.uri)
        assert query.lower() in hit.snippet.lower()
    (hit,) = space.search("gneiss").hits
    assert (hit.message.status, hit.message.seq, hit.message.role) == ("compacted", 3, "user")
    assert hits(space, "chert") == []
    assert hits(space, "chert", thinking=True) == [talk.tids["thinking"]]


def test_o40_a_message_that_cannot_be_read_is_counted(space, talk):
    talk.add("large", 1, content=[text("kept elsewhere " * 20_000)])
    talk.add("small", 2)
    assert len(hits(space, "elsewhere")) == 1
    with space.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs")
        rebuild(connection, SearchIndex())
    found = space.search("elsewhere")
    assert (found.hits, found.total, found.unreadable) == ([], 0, 1)
    assert space.search("small").total == 1


def test_o16_o19_o17_odd_characters_are_found(space, talk, indexing):
    talk.add("lone", 1, content=[text("tag \ud83c end")])
    talk.add("nul", 2, content=[text("a\0b")])
    talk.add("pair", 3, content=[text("lab \U0001f9ea")])
    assert hits(space, "tag") == hits(space, " end") == [talk.tids["lone"]]
    assert talk.tids["nul"] in hits(space, "a")
    assert hits(space, "a\0b") == hits(space, "\0") == [talk.tids["nul"]]
    assert hits(space, "\U0001f9ea") == [talk.tids["pair"]]


def test_large_and_binary_leaves(space, talk, indexing):
    talk.add("large", 1, content=[text("start " + "x" * 300_000 + " needle")])
    talk.add("base64-like", 2, content=[text("q" * 399_996 + "stop")])
    image = {"type": "image", "mimeType": "image/png", "data": "c2VjcmV0" * 4000}
    talk.add("image", 3, content=[image, text("a picture")])
    assert hits(space, "x needle") == [talk.tids["large"]]
    assert hits(space, "qqqstop") == [talk.tids["base64-like"]]
    assert hits(space, "c2VjcmV0") == []
    assert hits(space, "a picture") == [talk.tids["image"]]


def test_parts_that_were_sealed_as_one_keep_their_kinds(space, talk, indexing):
    many = [call(f"call-{number}", "ls", {"dir": "jars"}) for number in range(4000)]
    image = {"type": "image", "mimeType": "image/png", "data": "c2VjcmV0" * 40}
    thinking = {"type": "thinking", "thinking": "of basalt"}
    talk.add("sealed", 1, role="assistant", content=[*many, image, thinking, text("of granite")])
    assert hits(space, "granite") == hits(space, "jars") == [talk.tids["sealed"]]
    assert hits(space, "c2VjcmV0") == hits(space, "basalt") == []
    assert hits(space, "basalt", thinking=True) == [talk.tids["sealed"]]


def test_escaped_user_data_is_only_text(space, talk, indexing):
    odd = {"$type": "xyz.quasigod.lab.letta.defs#blobText", "z": "granite", "a": 0.5}
    talk.add("odd", 1, role="assistant", content=[call("c1", "ls", {"b": odd, "a": "marble"})])
    assert hits(space, "granite") == hits(space, "marble") == [talk.tids["odd"]]
    assert space.search("granite").unreadable == 0


def test_rewriting_and_deleting_keep_the_index_true(space, talk, indexing):
    talk.add("alpha", 1)
    talk.add("other", 2)
    talk.remark("alpha", status="compacted")
    assert hits(space, "alpha") == [talk.tids["alpha"]]
    talk.rewrite("alpha", 1, content=[text("omega")])
    assert (hits(space, "alpha"), hits(space, "omega")) == ([], [talk.tids["alpha"]])
    talk.delete("alpha")
    assert hits(space, "omega") == []
    assert list(space.verify()) == []


def test_hits_come_newest_first_and_counted(space, talk, indexing):
    names = [talk.add(f"needle {number}", number) for number in range(1, 8)]
    found = space.search("needle", limit=3)
    assert [hit.message.rkey for hit in found.hits] == names[:-4:-1]
    assert found.total == 7


def test_a_snippet_shows_the_text_as_written(space, talk):
    tid = talk.add("x", 1, content=[text("Die GROSSE Straße " * 30 + "Zum Kiln, ja " + "z " * 90)])
    value = space.repo.get("xyz.quasigod.lab.letta.message", tid).value
    shown = snippet(value, "strasse zum kiln", space.repo.get_blob)
    assert "Straße Zum Kiln, ja z" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) < 160
    assert snippet(value, "absent", space.repo.get_blob) is None


alphabet = st.text(st.sampled_from("aAbß夜ﬁİ\"'*%\n\0\ud800🧪"), max_size=12)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(alphabet, min_size=1, max_size=8), queries=st.lists(alphabet, max_size=6))
@pytest.mark.parametrize("batch", [1, 3, 10**6])
def test_search_is_a_substring_scan(tmp_path_factory, monkeypatch, batch, texts, queries):
    monkeypatch.setattr("lettaspace.conversation.search._BATCH", batch)
    with Space.open(tmp_path_factory.mktemp("search")) as space:
        talk = Talk(space)
        tids = {talk.add(f"m{n}", n, content=[text(each)]): each for n, each in enumerate(texts, 1)}
        for query in [*queries, *(each[1:5] for each in texts)]:
            wanted = fold(query)
            scan = [tid for tid, each in tids.items() if wanted and wanted in fold(each)]
            assert sorted(hits(space, query)) == sorted(scan), (query, texts)


def test_what_is_indexed_of_a_message(space, talk):
    content = [
        text("One"),
        {"type": "thinking", "thinking": "Two", "thinkingSignature": "sig"},
        call("c1", "Bash", {"command": "ls\t-la", "n": 5}),
    ]
    tid = talk.add("x", 1, role="assistant", content=content)
    with space.database.read() as connection:
        value = space.repo.get("xyz.quasigod.lab.letta.message", tid).value
        found = indexed(connection, value)
    assert found.thinking == "two"
    assert found.text == "one\nbash\ncommand\nls\t-la\nn"
