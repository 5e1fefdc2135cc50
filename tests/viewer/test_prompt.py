"""The page of a compiled prompt."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.prompt import compile_prompt, update_memory
from lettaspace.conversation.redaction import Redactor
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.conversation.memories import commit, init
from tests.conversation.test_prompt import digest
from tests.letta.build import AGENT, Store, b1, prompt, rows
from tests.viewer.conftest import Page, Running, Serve

CONVERSATION = "local-conv-1"


class Prompt:
    """A conversation whose agent has a memory, and the viewer that shows its prompt."""

    def __init__(self, space: Space, store: Store, running: Running) -> None:
        self.space = space
        self.store = store
        self.running = running
        self.path = init(store.path / "memfs" / AGENT / "memory")
        self.rkey = ""

    def bring_in(self, **prompt_fields: str) -> None:
        self.store.agent()
        fields = prompt(**prompt_fields) if prompt_fields else None
        self.store.conversation(rows(b1()), prompt=fields)
        import_directory(self.space, self.store.path)
        self.rkey = self.space.conversation(CONVERSATION).rkey

    def compile(self) -> None:
        compile_prompt(self.space, self.rkey, memory=MemoryDirectory(self.path))

    def page(self) -> Page:
        """The page, which writes nothing."""
        before = digest(self.space)
        page = self.running.page(f"/c/{self.rkey}/prompt")
        assert digest(self.space) == before
        return page


@pytest.fixture
def shown(space: Space, tmp_path: Path, serve: Serve) -> Prompt:
    store = Store(tmp_path / "letta")
    return Prompt(space, store, serve(space, letta=store.path))


class Blocks(HTMLParser):
    """The texts of `<pre>`, with the class of each."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._open = False
        self.feed(page.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre":
            self._open = True
            self.found.append((dict(attrs).get("class") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._open:
            kind, text = self.found[-1]
            self.found[-1] = (kind, text + data)


def blocks(page: Page) -> list[tuple[str, str]]:
    # The line break after <pre> is not part of the text.
    return [(kind, text.removeprefix("\n")) for kind, text in Blocks(page).found]


def test_fresh(shown: Prompt) -> None:
    head = commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    shown.compile()
    page = shown.page()
    assert "fresh Compiling now gives the same text." in page.text
    assert blocks(page) == [("", "You are Otter.\n\n"), ("core", "<memory>\n# Index\n</memory>")]
    assert page.links(f"/agents/{AGENT}/memory/commit/{head}")
    assert "42 of 200,000 bytes" in page.text
    assert page.links("/record?uri=at%3A//")


def test_memory_changed(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    shown.compile()
    commit(shown.path, {"MEMORY.md": b"# Other\n"})
    (shown.path / "new <b>.md").write_bytes(b"x")
    page = shown.page()
    assert "memory-changed" in page.text
    assert "would add 1 line and remove 1 line" in page.text
    difference = blocks(page)[0][1]
    assert "-# Index\n+# Other\n" in difference
    assert "new <b>.md" in page.text.partition("Not committed yet")[2]


def test_template_changed(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    shown.compile()
    shown.store.agent(system="You are Fig.\n\n{CORE_MEMORY}")
    import_directory(shown.space, shown.store.path)
    page = shown.page()
    assert "template-changed The agent's template is another" in page.text
    assert "+You are Fig." in blocks(page)[0][1]


def test_updated(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    shown.compile()
    commit(shown.path, {"MEMORY.md": b"# Newer\n"})
    update_memory(shown.space, shown.rkey, MemoryDirectory(shown.path))
    page = shown.page()
    assert "Updated: the model was told of a newer core memory" in page.text
    assert [kind for kind, _ in blocks(page)] == ["code diff", "", "core"]
    assert blocks(page)[-1][1] == "<memory>\n# Newer\n</memory>"


def test_missing(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    page = shown.page()
    assert "missing No prompt was compiled yet." in page.text
    assert "+You are Otter." in blocks(page)[0][1]
    assert shown.running.get("/c/3lalalalala33/prompt").status_code == 404


def test_oversize(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in(content="é" * 450_000, coreMemory="x")
    page = shown.page()
    assert "too large for a record of its own" in page.text
    assert "900,000 of 200,000 bytes too large" in page.text
    assert "50,000 characters more are not shown" in page.text


def test_memory_that_cannot_be_read(shown: Prompt) -> None:
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.bring_in()
    shown.compile()
    (shown.path / ".git/HEAD").write_text("1" * 40 + "\n")
    page = shown.page()
    assert "unknown It cannot be told" in page.text
    assert "cannot be read" in page.text
    assert "What compiling now would give cannot be told" in page.text


def test_memory_that_is_elsewhere(shown: Prompt, serve: Serve) -> None:
    shown.bring_in()
    commit(shown.path, {"MEMORY.md": b"# Index\n"})
    shown.compile()
    page = serve(shown.space).page(f"/c/{shown.rkey}/prompt")
    assert "only its template was compared" in page.text
    assert "the agent's memory is not on this machine" in page.text


def test_o63_hostile_text_is_text(shown: Prompt) -> None:
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\u202e"
    commit(shown.path, {"MEMORY.md": hostile.encode()})
    shown.bring_in(content=f"{hostile} {hostile}!", coreMemory=hostile, memfsRevision=hostile)
    page = shown.page()
    assert [attrs.get("src") for tag, attrs in page.tags if tag == "script"] == [
        "/static/viewer.js"
    ]
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert "\u202e" not in page.html
    core = [text for kind, text in blocks(page) if kind == "core"]
    assert core == [hostile.replace("\u202e", "\\u202e")] * 2


def test_secrets_are_redacted(shown: Prompt, serve: Serve) -> None:
    secret = "ghp_" + "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
    commit(shown.path, {"MEMORY.md": f"new {secret}".encode()})
    shown.bring_in(content=f"a {secret} b", coreMemory=secret)
    running = serve(shown.space, letta=shown.store.path, redaction=Redactor())
    page = running.page(f"/c/{shown.rkey}/prompt")
    assert secret not in page.html
    assert page.text.count("[redacted: ") >= 3
