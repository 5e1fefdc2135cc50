"""The pages of an agent's memory, over real repositories."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

from lettaspace.conversation import history
from lettaspace.conversation.redaction import Redactor
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.conversation.memories import Link, commit, git, init
from tests.conversation.test_history import ODD, merged
from tests.conversation.test_memory import conflicted, digest
from tests.letta.build import AGENT, Store, b1, rows
from tests.viewer.conftest import Page, Running, Serve

PAGE = f"/agents/{AGENT}/memory"
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> \u202etxt"


@dataclass(frozen=True)
class Memory:
    """An agent's memory, and the viewer that shows it."""

    path: Path
    """Not made yet."""
    running: Running

    def page(self, path: str = PAGE) -> Page:
        return self.running.page(path)


@pytest.fixture
def store(space: Space, tmp_path: Path) -> Store:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    import_directory(space, store.path)
    return store


@pytest.fixture
def memory(space: Space, store: Store, serve: Serve) -> Memory:
    running = serve(space, letta=store.path)
    return Memory(store.path / "memfs" / AGENT / "memory", running)


def link(page: Page, containing: str, *, number: int = 0) -> str:
    return page.links(containing)[number]


def test_files_and_log(memory: Memory) -> None:
    commit(init(memory.path), {"MEMORY.md": b"# Index\n", "notes/a.md": b"one\n"})
    head = commit(memory.path, {"MEMORY.md": b"# Index\n", "notes/a.md": b"two\n"})
    before = digest(memory.path)
    page = memory.page()
    assert "Otter" in page.text
    assert head in page.text
    assert "branch main" in page.text
    assert "notes/a.md" in page.text
    assert len(page.links("/commit/")) == 4  # two files, two commits
    file = memory.page(link(page, "/file?path=notes/a.md"))
    assert "two" in file.text
    assert head in file.text
    change = memory.page(link(file, f"/commit/{head}"))
    assert "-one" in change.text
    assert "+two" in change.text
    parent = memory.page(link(change, "/commit/"))
    assert "It changed" not in parent.text
    assert "added" in parent.text
    assert digest(memory.path) == before


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "no memory directory on this machine"),
        (lambda path: path.mkdir(parents=True), "not a git repository"),
        (init, "Nothing was ever committed"),
        (lambda path: (commit(init(path), {"a": b""}), (path / ".git/HEAD").write_text("0" * 40)),
         "is damaged"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(memory: Memory, make, said: str) -> None:  # type: ignore[no-untyped-def]
    make(memory.path)
    page = memory.page()
    assert said in page.text
    assert "History" not in page.text


def test_without_git(memory: Memory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit(init(memory.path), {"a.md": b"a"})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "git is not installed" in memory.page().text


def test_without_lettas_directory(space: Space, store: Store, serve: Serve) -> None:
    assert "no memory directory on this machine" in serve(space).page(PAGE).text


@pytest.mark.parametrize(
    "path",
    [
        "/agents/nobody/memory",
        f"{PAGE}/file",
        f"{PAGE}/file?path=",
        f"{PAGE}/file?path=gone.md",
        f"{PAGE}/file?path=..%2f..%2f..%2fagents",
        f"{PAGE}/file?path=a.md&at=HEAD",
        f"{PAGE}/file?path=a.md&at=--output%3dx",
        f"{PAGE}/commit/HEAD",
        f"{PAGE}/commit/{'1' * 40}",
        "/agents/..%2f..%2fmemfs/memory",
    ],
)
def test_what_is_not_there_is_not_found(memory: Memory, path: str) -> None:
    commit(init(memory.path), {"a.md": b"a"})
    assert memory.running.get(path).status_code == 404


def test_every_name_can_be_opened(memory: Memory) -> None:
    commit(init(memory.path), {name: os.fsencode(name) for name in ODD})
    page = memory.page()
    links = page.links("/file?path=")
    assert len(set(links)) == len(ODD)
    texts = [memory.page(each).text for each in dict.fromkeys(links)]
    for name in ODD:
        if name.isascii() and name.isprintable() and "  " not in name:
            assert any(f" {name} " in text for text in texts), name
    assert "\u202e" not in page.html
    assert "\\u202egnp.md" in page.text
    assert "a␊b.md" in page.text
    assert "\\xff\\xfe.md" in page.text


def test_hostile_text_is_text(memory: Memory) -> None:
    tree = {"a.md": HOSTILE.encode(), "a.txt": HOSTILE.encode(), HOSTILE.replace("/", "_"): b"x"}
    commit(init(memory.path), {**tree, "l": Link(HOSTILE)})
    git(memory.path, "commit", "-q", "--amend", "-m", f"{HOSTILE}\n\n{HOSTILE}", "--author",
        "'a\" onclick=x &lt; <m@x>")  # fmt: skip
    page = memory.page()
    every = [page, *(memory.page(each) for each in dict.fromkeys(page.links(PAGE + "/")))]
    assert len(every) == 6
    for each in every:
        assert [attrs.get("src") for tag, attrs in each.tags if tag == "script"] == [
            "/static/viewer.js"
        ]
        assert not [tag for tag, attrs in each.tags if "onerror" in attrs or tag == "img"]
        assert "\u202e" not in each.html
        assert "<script>alert(1)</script>" in unescape(each.html)


def test_markdown_is_rendered_beside_what_is_written(memory: Memory) -> None:
    text = "---\ndescription: what it is\n---\n# Heading\n\n- [x] done **well**\n"
    commit(init(memory.path), {"a.md": text.encode(), "b.py": b"x = 1\n"})
    page = memory.page(f"{PAGE}/file?path=a.md")
    assert "<strong>well</strong>" in page.html
    assert "description: what it is" in page.text
    assert "# Heading" in page.text
    assert "<strong>" not in memory.page(f"{PAGE}/file?path=b.py").html


def test_other_kinds_of_files(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"b.bin": b"\0\1", "l.md": Link("/etc/hostname"), "e.md": b"", "big.md": b"x" * 99,
            "c.md": b"<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n"}  # fmt: skip
    head = commit(init(memory.path), tree, submodules=("mod",))
    monkeypatch.setattr(history, "MAX_FILE", 98)
    said = {
        "b.bin": "A binary file.",
        "l.md": "this is the name of its target:/etc/hostname",
        "e.md": "An empty file.",
        "big.md": "too large to be shown",
        "c.md": "unresolved conflict",
        "mod": "Another repository is mounted here",
    }
    for name, text in said.items():
        assert text in memory.page(f"{PAGE}/file?path={name}").text
    assert "c.md" in memory.page().text.partition("In conflict")[2].partition("Files")[0]
    patch = memory.page(f"{PAGE}/commit/{head}")
    assert "git takes it for binary" in patch.text
    assert "Subproject commit" in patch.text


def test_uncommitted_and_conflicts_are_named(memory: Memory) -> None:
    conflicted(init(memory.path))
    (memory.path / "new <b>.md").write_bytes(b"x")
    text = memory.page().text
    assert "In conflict system/persona.md" in text
    assert "new <b>.md" in text.partition("Not committed yet")[2]


def test_the_log_has_pages(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    init(memory.path)
    for number in range(3):
        commit(memory.path, {"a.md": str(number).encode(), "b.md": b""})
    monkeypatch.setattr("lettaspace.viewer.memory.PAGE", 2)
    page = memory.page()
    assert page.links("?page=") == [f"{PAGE}?page=2"]
    last = memory.page(f"{PAGE}?page=2")
    assert [each for each in last.links(PAGE) if each == PAGE] == [PAGE]
    assert not last.links("?page=3")
    file = memory.page(link(page, "/file?path=a.md"))
    (older,) = file.links("&page=2")
    assert not memory.page(older).links("&page=3")
    assert "No commits here" in memory.page(f"{PAGE}?page=99999999").text


def test_merges_renames_and_deletions(memory: Memory) -> None:
    _, merge = merged(init(memory.path))
    page = memory.page(f"{PAGE}/commit/{merge}")
    assert "for its first parent" in page.text
    assert "added s.md" in page.text
    assert len(page.links("/commit/")) == 2
    moved = commit(memory.path, {"b.md": b"a", "m.md": b"m"})
    page = memory.page(f"{PAGE}/commit/{moved}")
    assert "renamed b.md from a.md" in page.text
    assert "Its content is the same." in page.text
    assert "deleted s.md" in page.text
    # Both lead to the file as it was.
    for path in ("a.md", "s.md"):
        assert memory.page(link(page, f"/file?path={path}")).links(f"/commit/{merge}")


def test_a_shallow_clone(memory: Memory, tmp_path: Path) -> None:
    source = init(tmp_path / "source")
    commit(source, {"a.md": b"1"})
    commit(source, {"a.md": b"2"})
    memory.path.parent.mkdir(parents=True)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{source}", str(memory.path))
    assert "without its whole history" in memory.page().text


def test_damage_is_said_on_the_page(memory: Memory) -> None:
    first = commit(init(memory.path), {"a.md": b"1"})
    commit(memory.path, {"a.md": b"2"})
    (memory.path / ".git/objects" / first[:2] / first[2:]).unlink()
    page = memory.page()
    assert "git cannot read the history" in page.text


def test_secrets_are_redacted(space: Space, store: Store, serve: Serve) -> None:
    secret = "ghp_" + "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
    key = (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAy8Dbv8prpJ\n-----END RSA PRIVATE KEY-----"
    )
    path = init(store.path / "memfs" / AGENT / "memory")
    commit(path, {"a.md": f"token {secret}\n{key}\n".encode()})
    git(path, "commit", "-q", "--amend", "-m", f"add {secret}\n\nand {secret}")
    running = serve(space, letta=store.path, redaction=Redactor())
    page = running.page(PAGE)
    every = [page, *(running.page(each) for each in dict.fromkeys(page.links(PAGE + "/")))]
    assert len(every) == 3
    for each in every:
        assert secret not in each.html
        assert "MIIEow" not in each.html
        assert "[redacted: " in each.text


def test_a_directory_that_goes_while_it_is_looked_at(memory: Memory) -> None:
    head = commit(init(memory.path), {"a.md": b"1"})
    shutil.rmtree(memory.path)
    assert memory.running.get(f"{PAGE}/commit/{head}").status_code == 404
    assert "no memory directory" in memory.page().text
