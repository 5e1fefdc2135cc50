"""A space in which every kind of page has something to show, and every mark and badge is set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lettaspace.conversation import jsontext
from lettaspace.conversation.memory import MemoryDirectory
from lettaspace.conversation.payload import (
    AssistantMessage,
    Cost,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from lettaspace.conversation.payload import UserMessage as User
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.conversation.memories import commit, init
from tests.lab.driver import png
from tests.letta.build import AGENT, Store, b1, prompt, rows

MARKDOWN = """\
# A title

Some *words*, `code`, a [link](https://a.example/) and https://b.example/path.

> quoted [x](javascript:alert(1))

1. one
2. two
   - inner

| jar | pieces | a column with a rather long name | and another one beside it | last |
|---|--:|:-:|---|---|
| plum | 12 | middle | wordswordswordswordswordswordswordswords | end |

```python
class Jar:  # a comment
    size: float = 1.5

    @property
    def label(self) -> str:
        return f"jar {self.size!r}" + 'x' if None else "y"  # and a line that is longer than a phone
```

---
"""
TERMINAL = (
    "".join(f"\x1b[{code}mcolour {code}\x1b[0m " for code in (*range(30, 38), *range(90, 98)))
    + "\x1b[1mbold\x1b[0m\n"
)
DIFF = """\
--- a/jars.py
+++ b/jars.py
@@ -1,2 +1,2 @@ def jars():
 kept
-old line
+new line that is rather long, long enough to need more room than there is on the page of a phone
"""
NUMBERS = (
    '{"id": 9007199254740993, "n": 1, "one": 1.0, "tiny": 1e-7, "minus": -0.0, "on": [true, null]}'
)
LONG_WORD = "Donaudampfschifffahrtsgesellschaft" * 40


@dataclass(frozen=True, slots=True)
class Rich:
    """Where things are, by record key."""

    agent: str
    talk: str
    long: str
    plain: str
    letta: Path
    summary: str
    covered: str
    """A result that was compacted, in a fold."""

    def pages(self) -> dict[str, str]:
        """A page of every kind."""
        memory = f"/agents/{self.agent}/memory"
        return {
            "list": "/",
            "agents": "/agents",
            "agent": f"/agents/{self.agent}",
            "memory": memory,
            "memory file": f"{memory}/file?path=notes/jars.md",
            "memory program": f"{memory}/file?path=jars.py",
            "commit": f"{memory}/commit/{MemoryDirectory(self.memory).state().revision}",
            "transcript": f"/c/{self.talk}",
            "window": f"/c/{self.talk}?view=window",
            "covered": f"/c/{self.talk}/covered/{self.summary}",
            "message": f"/c/{self.talk}/m/{self.covered}",
            "long": f"/c/{self.long}",
            "imported": f"/c/{self.plain}",
            "prompt": f"/c/{self.plain}/prompt",
            "no prompt": f"/c/{self.talk}/prompt",
            "search": "/search?q=jar",
            "nothing found": "/search?q=zirconium",
            "search form": "/search",
            "usage": "/usage",
            "usage of one": f"/usage?conversation={self.talk}",
        }

    @property
    def memory(self) -> Path:
        return self.letta / "memfs" / AGENT / "memory"


def make(space: Space, letta: Path) -> Rich:
    store = Store(letta)
    store.agent()
    imported = store.conversation(rows(b1()), prompt=prompt(), tags=["glass", "summer"])
    with (imported / "messages.jsonl").open("ab") as file:
        file.write(b'{"type":"message", broken\n')
    store.conversation(
        rows(b1()), key="conversation:local-conv-2", summary="Archived", archived=True, hidden=True
    )
    memory = init(letta / "memfs" / AGENT / "memory")
    before = {"notes/jars.md": b"---\ndescription: jars\n---\nTwo *jars*.\n", "jars.py": b"a = 1\n"}
    commit(memory, before)
    commit(memory, {**before, "jars.py": b"a = 2  # two\nb = 'x'\n", "seal.bin": b"\0\1\2"})
    (memory / "notes/new.md").write_text("not committed")
    import_directory(space, letta)
    plain = space.conversation("local-conv-1").rkey
    talk, summary, covered = _talk(space)
    return Rich(AGENT, talk, _long(space), plain, letta, summary, covered)


def _talk(space: Space) -> tuple[str, str, str]:
    talk = space.create_conversation(AGENT, title="Jars, and everything that may be said of them")

    def answer(*parts: object, model: str = "m-1", **more: object) -> None:
        used = Usage(input=1200, output=40, cache_read=100, cost=Cost(total=0.0123))
        talk.append(AssistantMessage(parts, model=model, provider="acme", usage=used, **more))  # type: ignore[arg-type]

    talk.append(User.text("Old words about a jar\n\n<system-reminder>be kind</system-reminder>"))
    first = ToolCall("c0", "Read", {"file_path": "jars.py"})
    answer(Text("I look."), first, stop_reason="toolUse")
    lines = "\n".join(f"line {number} of the jars" for number in range(60))
    covered = talk.append(ToolResult.of(first, f"def jars():\n{lines}"))
    summary = talk.compact(lambda _: "A summary: **jars** were looked at.")
    assert summary is not None
    talk.append(User([Text(MARKDOWN), Image.of(png(40, 30), "image/png")]))
    calls = [
        ToolCall("c1", "Bash", {"command": "ls -la 'jars' | sort # all", "timeout": 1.5}),
        ToolCall("c2", "edit", {"path": "jars.py", "old_string": "a\nb", "new_string": "a\nc"}),
        ToolCall("c3", "look_up", jsontext.loads(NUMBERS)),
        ToolCall("c4", "never_answered", {"word": LONG_WORD}),
    ]
    answer(
        Thinking("The jars are **there**.", signature="s"),
        Text("Now:"),
        *calls,
        stop_reason="toolUse",
    )
    talk.append(ToolResult.of(calls[0], TERMINAL + LONG_WORD))
    talk.append(ToolResult.of(calls[1], DIFF))
    talk.append(ToolResult.of(calls[2], NUMBERS, is_error=True))
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    talk.append(User([Text(LONG_WORD), Image.of(svg, "image/svg+xml")]))
    answer(Text("Two jars."), model="m-2")
    talk.append({"any": ["thing", 1.5]}, role="user", format="acme.msg", version=3)
    talk.append(AssistantMessage([], stop_reason="error", error_message="The provider is away."))
    talk.append(ToolResult.of(ToolCall("nowhere", "lost"), "an orphan"))
    talk.fork(title="A fork of the jars")
    return talk.rkey, summary.summary.rkey, covered.rkey


def _long(space: Space) -> str:
    talk = space.create_conversation(AGENT, title="Long")
    for number in range(40):
        talk.append(User.text(f"question {number}"))
        call = ToolCall(f"c{number}", "count", {"number": number})
        talk.append(AssistantMessage([call], stop_reason="toolUse"))
        talk.append(ToolResult.of(call, f"result {number}"))
        talk.append(AssistantMessage.text(f"answer {number}"))
        if number == 5:
            talk.compact(lambda _: "The first six.")
    return talk.rkey
