"""`search` as people and programs meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from lettaspace.space.projection import rebuild
from tests.cli.conftest import Cli
from tests.letta.build import Store, call, compaction, message, result, row, rows, text


@pytest.fixture
def stones(home: Path, tmp_path: Path, cli: Cli) -> Cli:
    """O40's words: argument, result, compacted message, summary, thinking."""
    made = rows(
        [
            message(1, "user", "gneiss"),
            message(2, "assistant", [{"type": "thinking", "thinking": "chert"}, text("hm")]),
        ]
    )
    summary = message(3, "user", "flint")
    made.append(compaction(summary, "e3", "e2", None, 2, 1))
    made.append(row(message(4, "assistant", [call("c1", "ls", {"x": "quartz"})]), "e4", "e3"))
    made.append(row(result(5, "c1", "basalt"), "e5", "e4"))
    made.append(row(message(6, "user", "don't 50% (net)* \" 昨晚重跑ingest后清零"), "e6", "e5"))
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(made, ["ui-msg-3", "ui-msg-4", "ui-msg-5", "ui-msg-6"])
    with Space.open(home) as space:
        import_directory(space, store.path)
    return cli


@pytest.mark.parametrize(
    ("word", "role", "status"),
    [
        ("quartz", "assistant", "active"),
        ("basalt", "toolResult", "active"),
        ("gneiss", "user", "compacted"),
        ("flint", "user", "active"),
    ],
)
def test_o40_everything_is_searched(stones: Cli, word: str, role: str, status: str) -> None:
    found = stones("search", word, "--json").json
    assert list(found) == ["query", "total", "distinct", "unreadable", "hits"]
    assert (found["query"], found["total"], found["unreadable"]) == (word, 1, 0)
    (hit,) = found["hits"]
    assert list(hit) == ["conversation", "rkey", "uri", "seq", "role", "status", "snippet"]
    assert (hit["role"], hit["status"]) == (role, status)
    assert word in hit["snippet"]
    people = stones("search", word).out
    assert word in people
    assert people.endswith("1 message has it.\n")
    assert ("[compacted]" in people) is (status == "compacted")


def test_o40_thinking_needs_its_flag(stones: Cli) -> None:
    assert stones("search", "chert").out == "No message has it.\n"
    assert stones("search", "chert", "--thinking", "--json").json["total"] == 1


@pytest.mark.parametrize("query", ["don't", "50% (net)*", '"', "昨晚", "清零", "ingest", "昨"])
def test_o38_o39_queries_are_plain_text(stones: Cli, query: str) -> None:
    assert stones("search", query, "--json").json["total"] == 1


def test_a_query_that_looks_like_an_option(stones: Cli) -> None:
    assert stones("search", "--", "--json").out == "No message has it.\n"


def test_the_limit_is_said(demo: Cli) -> None:
    found = demo("search", "celadon", "--limit", "2", "--json").json
    assert (len(found["hits"]), found["total"]) == (2, 6)
    assert (
        "6 messages have it; shown are the newest 2."
        in demo("search", "celadon", "--limit", "2").out
    )


def test_o40_what_could_not_be_read_is_said(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows([message(1, "user", "red clay " * 30_000)]))
    with Space.open(home) as space:
        import_directory(space, store.path)
        # The message's text lies in a blob; without it, no index can be made anew.
        with space.database.write() as connection:
            connection.exec_driver_sql("DELETE FROM blobs")
            rebuild(connection, space.index)
    assert cli("search", "clay", "--json").json["unreadable"] == 1
    assert "1 message(s) could not be read" in cli("search", "clay").out


def test_o37_copies_in_forks_are_marked(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows([message(1, "user", "blue clay")]))
    with Space.open(home) as space:
        import_directory(space, store.path)
        original = space.conversation("local-conv-1")
        original.fork()
        uri = next(original.transcript()).uri
    found = cli("search", "clay", "--json").json
    assert (found["total"], found["distinct"]) == (2, 1)
    assert sorted(hit.get("copyOf", "") for hit in found["hits"]) == ["", uri]
    shown = cli("search", "clay").out
    assert "[copy]" in shown
    assert "2 messages have it, 1 of them in forks as copies." in shown
