"""Scenarios: each makes a real storage directory with one kind of history in it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
from typing import Any

from tests.lab.driver import LettaHome, Session, png
from tests.lab.lab import Lab, scenario
from tests.lab.provider import OVERFLOW, REFUSED, SMALL_MODEL, Call, Reply
from tests.lab.store import (
    conversation_dir,
    conversation_key,
    in_context_ids,
    read_agents,
    read_rows,
    text_of,
)
from tests.waiting import until

CONVERSATION = "local-conv-1"

OPENAI_MODEL = "openai/gpt-5.5"
ANTHROPIC_MODEL = "anthropic/claude-opus-4-8"

THOUGHT = "The jars may be in the note."
UNICODE_TEXT = "astral \U0001f9ea lone \ud83c nul \x00 separators \u2028\u2029 mark \ufeff end"
UNICODE_THOUGHT = "half \udd0d pair, nul \x00"
UNICODE_PROMPT = "line\u2028break \U0001f469\u200d\U0001f680 \ufeffmark"
ODD_NUMBERS = (
    '{"command": "echo counted", "description": "count", "timeout": 5000.0, "one": 1.0, '
    '"huge": 1e21, "big": 9007199254740993, "tenth": 0.1, "zero": -0.0, "small": 1e-7}'
)
BIG_TEXT = "All the jars, again and again. " * 2000
BIG_OUTPUT = 200_000
USER_PICTURE = png(3, 5, (0, 90, 200))
PRICED = {"input": 1234, "output": 567, "cached": 100}
MEMORY = "The user likes teal."
SUBAGENT_TEXT = "The inner answer."


def bash(command: str) -> Call:
    return Call("Bash", {"command": command, "description": "look"})


def encoded(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def read(home: LettaHome, name: str) -> Call:
    return Call("Read", {"file_path": str(home.work / name)})


@scenario
def deterministic(lab: Lab) -> LettaHome:
    """Two turns with Letta's own model-free executor."""
    home = lab.bare_home("deterministic")
    executor = {"LETTA_LOCAL_BACKEND_EXECUTOR": "deterministic"}
    home.ask("hello", model=None, env=executor)
    home.ask("again", model=None, conversation=CONVERSATION, env=executor)
    return home


@scenario
def turns(lab: Lab) -> LettaHome:
    """Four turns in one process, one of them with a tool call: ten messages."""
    home = lab.home("turns")
    look = lab.script("turns", Reply("Looking.", calls=(bash("cat note.txt"),)), Reply("Two jars."))
    with home.session() as session:
        for prompt in ("first", "second", f"list the jars {look}", "fourth"):
            session.ask(prompt)
    return home


@scenario
def tool(lab: Lab) -> LettaHome:
    """Thinking, text and a tool call; then a second turn from another process."""
    home = lab.home("tool")
    look = lab.script(
        "tool",
        Reply("Looking.", thinking=THOUGHT, calls=(bash("cat note.txt"),)),
        Reply("Two jars: plum and fig."),
    )
    home.ask(f"List the jars. {look}")
    home.ask("Thank you.", conversation=CONVERSATION)
    return home


@scenario
def parallel(lab: Lab) -> LettaHome:
    """Three calls at once, one of which fails; then one more call in the same turn."""
    home = lab.home("parallel")
    calls = (bash("echo one"), bash("echo two >&2; exit 3"), read(home, "note.txt"))
    go = lab.script(
        "parallel",
        Reply(thinking="All at once.", calls=calls),
        Reply("Between.", calls=(bash("echo three"),)),
        Reply("Done.", thinking="That is all."),
    )
    home.ask(f"go {go}")
    return home


@scenario
def images(lab: Lab) -> LettaHome:
    """A picture in a tool result and one from the user."""
    home = lab.home("images")
    go = lab.script("images", Reply(calls=(read(home, "picture.png"),)), Reply("A picture."))
    source = {"type": "base64", "media_type": "image/png", "data": encoded(USER_PICTURE)}
    with home.session() as session:
        session.ask(f"look {go}")
        session.ask([{"type": "text", "text": "And this?"}, {"type": "image", "source": source}])
    return home


@scenario
def unicode(lab: Lab) -> LettaHome:
    """Lone surrogates, NUL, line separators, a byte-order mark and astral characters."""
    home = lab.home("unicode")
    output = bash("printf 'a\\000b\\377\\n\\342\\200\\250'")
    go = lab.script(
        "unicode", Reply(UNICODE_TEXT, thinking=UNICODE_THOUGHT, calls=(output,)), Reply("Fine.")
    )
    home.ask(f"{UNICODE_PROMPT} {go}")
    return home


@scenario
def numbers(lab: Lab) -> LettaHome:
    """Floats and big integers in tool arguments, and float costs of priced models.

    Conversations: 1 LM Studio, 2 OpenAI, 3 Anthropic.
    """
    home = lab.home("numbers", "lmstudio", "openai", "anthropic")
    count = lab.script(
        "numbers", Reply("Counting.", calls=(Call("Bash", raw=ODD_NUMBERS),)), Reply("Counted.")
    )
    dear = lab.script("numbers-priced", Reply("Dear.", usage=PRICED))
    home.ask(f"count {count}")
    home.ask(f"price {dear}", model=OPENAI_MODEL)
    home.ask(f"price {dear}", model=ANTHROPIC_MODEL)
    return home


@scenario
def signed(lab: Lab) -> LettaHome:
    """Signed and redacted thinking (conversation 1, Anthropic), encrypted reasoning (2, OpenAI)."""
    home = lab.home("signed", "lmstudio", "openai", "anthropic")
    go = lab.script(
        "signed",
        Reply("Looking.", thinking=THOUGHT, calls=(bash("cat note.txt"),)),
        Reply("Two jars.", thinking="Plum and fig."),
    )
    home.ask(f"go {go}", model=ANTHROPIC_MODEL)
    home.ask(f"go {go}", model=OPENAI_MODEL)
    return home


@scenario
def errors(lab: Lab) -> LettaHome:
    """Conversations: 1 refused, 2 cut in the stream, 3 length, 4 bad arguments, 5 unknown tool."""
    home = lab.home("errors")
    refused = lab.script("errors-refused", Reply(failure=REFUSED))
    cut = lab.script("errors-cut", Reply("This begins and then it breaks off.", cut="text"))
    length = lab.script("errors-length", Reply("Too lo", finish="length"))
    broken = Call("Bash", raw='{"command": "echo oops", "description": ')
    bad = lab.script("errors-arguments", Reply("Trying.", calls=(broken,)), Reply("Recovered."))
    unknown = lab.script("errors-tool", Reply(calls=(Call("NoSuchTool", {"a": 1}),)), Reply("Oh."))
    home.ask(f"go {refused}", check=False)
    home.ask(f"go {cut}")
    home.ask(f"go {length}", check=False)
    home.ask(f"go {bad}")
    home.ask(f"go {unknown}")
    return home


@scenario
def snapshot(lab: Lab) -> LettaHome:
    """A stream cut after a tool result: the retry replaces the message under the same id."""
    home = lab.home("snapshot")
    go = lab.script(
        "snapshot",
        Reply("Calling.", calls=(bash("echo once"),)),
        Reply("A sentence that is cut the first time.", thinking="Half a thought.", cut="text"),
    )
    home.ask(f"go {go}")
    return home


@scenario
def orphan(lab: Lab) -> LettaHome:
    """A stream cut after a tool call: the call of a failed answer counts for nothing, so Letta
    leaves its result out of the window though it is in the file."""
    home = lab.home("orphan")
    call = bash("echo never")
    go = lab.script("orphan", Reply("Calling.", calls=(call,), cut="end"), Reply("Done."))
    home.ask(f"go {go}")
    home.ask("And now?", conversation=CONVERSATION)
    return home


@scenario
def compact_auto(lab: Lab) -> LettaHome:
    """Letta compacts by itself in a small context window, more than once."""
    home = lab.home("compact_auto")
    fat = lab.script("compact_auto", Reply("F" * 4000))
    with home.session(model=f"lmstudio/{SMALL_MODEL}") as session:
        for number in range(4):
            session.ask(f"turn {number} {fat} {'u' * 3000}")
        session.ask("after")
    return home


@scenario
def compact_all(lab: Lab) -> LettaHome:
    """A manual compaction that keeps nothing, and a turn after it."""
    home = lab.copy("turns", "compact_all")
    with home.app_server() as server:
        server.compact(CONVERSATION, "all")
    home.ask("after", conversation=CONVERSATION)
    return home


@scenario
def compact_sliding(lab: Lab) -> LettaHome:
    """A manual compaction that keeps a tail, and a turn after it."""
    home = lab.copy("turns", "compact_sliding")
    with home.app_server() as server:
        server.compact(CONVERSATION, "sliding_window", 0.3)
    home.ask("after", conversation=CONVERSATION)
    return home


@scenario
def compact_twice(lab: Lab) -> LettaHome:
    """A second compaction covers the first summary and keeps a part of what the first one kept."""
    home = lab.copy("compact_sliding", "compact_twice")
    with home.app_server() as server:
        server.compact(CONVERSATION, "sliding_window", 0.3)
    return home


@scenario
def compact_thrice(lab: Lab) -> LettaHome:
    """A third compaction covers everything."""
    home = lab.copy("compact_twice", "compact_thrice")
    with home.app_server() as server:
        server.compact(CONVERSATION, "all")
    return home


@scenario
def compact_overflow(lab: Lab) -> LettaHome:
    """The provider says that the context is too long: in conversation 1 at the start of a turn, in
    2 after a tool result."""
    home = lab.home("compact_overflow")
    start = lab.script("compact_overflow", Reply("Shorter.", failure=OVERFLOW))
    call = Reply("Looking.", calls=(bash("echo found"),))
    within = lab.script("compact_overflow-call", call, Reply("Shorter.", failure=OVERFLOW))
    home.ask(f"go {start}")
    home.ask(f"go {within}")
    return home


@scenario
def forks(lab: Lab) -> LettaHome:
    """Conversations: 2 a whole fork of 1, 3 a fork at its fourth message, 4 a fork that was
    compacted, 5 a fork of that one, with a turn of its own."""
    home = lab.copy("turns", "forks")
    fourth = in_context_ids(home.storage, conversation_key(1))[3]
    with home.app_server() as server:
        server.fork(CONVERSATION)
        server.fork(CONVERSATION, fourth)
        server.fork(CONVERSATION)
        server.compact("local-conv-4", "sliding_window", 0.3)
        server.fork("local-conv-4")
    home.ask("in the fork", conversation="local-conv-5")
    return home


@scenario
def many(lab: Lab) -> LettaHome:
    """Two conversations (one titled, one archived), the agent's default one, a second agent."""
    home = lab.home("many")
    agent = home.ask("first").agent_id
    home.ask("second", "--new")
    home.ask("in the default", "--agent", agent, conversation="default")
    home.ask("someone else", "--new-agent", "--personality", "linus")
    with home.app_server() as server:
        titled: dict[str, Any] = {"summary": "Jars, and where they stand"}
        server.call("conversation_update", conversation_id="local-conv-1", body=titled)
        server.call("conversation_update", conversation_id="local-conv-2", body={"archived": True})
    return home


@scenario
def memory(lab: Lab) -> LettaHome:
    """The model commits to its memory; the next turn is told of it."""
    home = lab.home("memory")
    page = f"---\\nname: facts\\ndescription: facts\\n---\\n{MEMORY}\\n"
    commit = (
        f"cd \"$MEMORY_DIR\" && printf -- '{page}' > facts.md && git add -A && git commit -qm teal"
    )
    go = lab.script("memory", Reply(calls=(bash(commit),)), Reply("Remembered."))
    home.ask(f"I like teal. {go}")
    home.ask("What do I like?", conversation=CONVERSATION)
    return home


@scenario
def kill_tool(lab: Lab) -> LettaHome:
    """`kill -9` while a tool runs: a call without a result."""
    home = lab.home("kill_tool")
    slow = lab.script("kill_tool", Reply("Slowly.", calls=(_SLOW_TOOL,)))
    with home.session() as session:
        session.send(f"go {slow}")
        tool = _running_tool(home)
        session.kill_when(lambda: _is_whole(home))
    _end(tool)
    return home


# The tool has a process group of its own, so it leaves its id for us to end it by.
_SLOW_TOOL = bash("echo $$ > tool.pid; exec sleep 600")


def _running_tool(home: LettaHome) -> int:
    mark = home.work / "tool.pid"

    def number() -> int | None:
        text = mark.read_text() if mark.exists() else ""
        return int(text) if text.endswith("\n") else None

    return until(number, about="running tool")


def _is_whole(home: LettaHome) -> bool:
    """Whether no small file is just being rewritten: how such a file ends is not of interest."""
    try:
        for path in home.storage.rglob("*.json"):
            json.loads(path.read_text())
    except (ValueError, OSError):
        return False
    return True


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@scenario
def kill_tool_resumed(lab: Lab) -> LettaHome:
    """The same, and Letta settled the call when the conversation was resumed."""
    home = lab.copy("kill_tool", "kill_tool_resumed")
    home.ask("Still there?", conversation=CONVERSATION)
    return home


@scenario
def kill_stream(lab: Lab) -> LettaHome:
    """`kill -9` in the middle of an answer: the window names a message that has no row."""
    home = lab.home("kill_stream")
    go = lab.script("kill_stream", Reply("A long answer that never ends.", pause="kill_stream"))
    with home.session() as session:
        session.send(f"go {go}")
        _streaming(lab, home, "kill_stream", 2)
        session.kill_when(lambda: _is_whole(home))
    lab.provider.gate("kill_stream").open()
    return home


def _streaming(lab: Lab, home: LettaHome, gate: str, messages: int) -> None:
    """Wait until the answer has begun, and Letta has noted its id."""
    lab.provider.gate(gate).await_arrival()
    key = conversation_key(1)

    def noted() -> bool:
        # The file is rewritten in place: it may be empty or torn at this moment.
        with contextlib.suppress(ValueError, OSError):
            return len(in_context_ids(home.storage, key)) >= messages
        return False

    until(noted, about="first piece of the answer")


@scenario
def kill_stream_resumed(lab: Lab) -> LettaHome:
    """The same, and one more turn after it."""
    home = lab.copy("kill_stream", "kill_stream_resumed")
    home.ask("Still there?", conversation=CONVERSATION)
    return home


@scenario
def interrupted(lab: Lab) -> LettaHome:
    """The user stops a running tool, then asks something else."""
    home = lab.home("interrupted")
    go = lab.script("interrupted", Reply("Slowly.", calls=(_SLOW_TOOL,)), Reply("As you like."))
    with home.session() as session:
        session.send(f"go {go}")
        tool = _running_tool(home)
        session.interrupt()
        session.result()
        session.ask("Something else.")
    _end(tool)
    return home


@scenario
def big(lab: Lab) -> LettaHome:
    """A 62 kB answer and 200 kB of tool output."""
    home = lab.home("big")
    output = bash(f"head -c {BIG_OUTPUT} /dev/zero | tr '\\0' x")
    go = lab.script("big", Reply("Much.", calls=(output,)), Reply(BIG_TEXT))
    home.ask(f"go {go}")
    return home


@scenario
def subagent(lab: Lab) -> LettaHome:
    """The agent hands work to a subagent, a hidden agent with a conversation of its own."""
    home = lab.home("subagent")
    inner = lab.script("subagent-inner", Reply(SUBAGENT_TEXT))
    task = {
        "subagent_type": "general-purpose",
        "description": "count",
        "prompt": f"Count the jars. {inner}",
    }
    go = lab.script(
        "subagent",
        Reply("Delegating.", calls=(Call("Agent", task),)),
        Reply("The subagent is at it.", pause="subagent"),
    )
    with home.session() as session:
        session.send(f"go {go}")
        # It runs beside the turn, in a process that would end with ours.
        until(lambda: _subagent_answered(home), about="the subagent's answer")
        lab.provider.gate("subagent").open()
        session.result()
    return home


def _subagent_answered(home: LettaHome) -> bool:
    with contextlib.suppress(ValueError, OSError):
        for agent in read_agents(home.storage):
            if agent.get("hidden"):
                rows = read_rows(home.storage, f"default:{agent['id']}")
                return any(text_of(row["message"]) == SUBAGENT_TEXT for row in rows[1:])
    return False


@scenario
def race(lab: Lab) -> LettaHome:
    """Two processes answer in one conversation at once: the second takes the first one's id."""
    home = lab.home("race")
    home.ask("seed")
    scripts = {
        side: lab.script(f"race-{side}", Reply(f"The answer of the {side}.", pause=f"race-{side}"))
        for side in ("left", "right")
    }
    with _open(home) as left, _open(home) as right:
        left.send(f"I am the left. {scripts['left']}")
        lab.provider.gate("race-left").await_arrival()
        right.send(f"I am the right. {scripts['right']}")
        lab.provider.gate("race-right").await_arrival()
        lab.provider.gate("race-left").open()
        left.result()
        lab.provider.gate("race-right").open()
        right.result()
    return home


def _open(home: LettaHome) -> Session:
    return home.session(conversation=CONVERSATION)


@scenario
def reused_ids(lab: Lab) -> LettaHome:
    """An older conversation.json came back (a backup, say): Letta counts from there again, and ids
    in the file stand for two different messages."""
    home = lab.home("reused_ids")
    record = conversation_dir(home.storage, conversation_key(1)) / "conversation.json"
    home.ask("one")
    older = record.read_bytes()
    home.ask("two, to be forgotten", conversation=CONVERSATION)
    record.write_bytes(older)
    home.ask("two again", conversation=CONVERSATION)
    return home
