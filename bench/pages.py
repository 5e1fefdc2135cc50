"""What pages of the viewer cost the server: deep in a long conversation, in a long list."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figure import Figure, Goal, ratio
from bench.measure import Cost, interleaved, timed
from lettaspace.conversation.records import (
    AGENT,
    CONVERSATION,
    CONVERSATION_STATE,
    MESSAGE,
    envelope,
)
from lettaspace.conversation.space import Space
from lettaspace.space.writes import Create
from lettaspace.viewer.app import viewer
from lettaspace.viewer.guard import TOKEN, Hosts

PAGE_GOAL = Goal(1.3)
LIST_GOAL = Goal(1.5)

_HOST = b"127.0.0.1:7430"
_BATCH = 50
"""Conversations written in one batch."""


def last_page(context: Context) -> list[Figure]:
    """The last page of a long conversation against the first one of a short conversation."""
    (long, long_home), (short, short_home) = context.long, context.short
    rounds = context.rounds(41)
    with ExitStack() as stack:
        one, other = (stack.enter_context(_Viewer(home)) for home in (long_home, short_home))
        ours, base = interleaved(
            rounds,
            one.answering(f"/c/{one.only()}"),
            other.answering(f"/c/{other.only()}", first=1),
        )
    return [
        ratio(
            "viewer-last-page",
            (f"the last page of a conversation of {long.messages}", ours),
            (f"the first page of a conversation of {short.messages}", base),
            PAGE_GOAL,
            rounds=rounds,
        )
    ]


def long_list(context: Context) -> list[Figure]:
    """The list of conversations in a space of many against that in a space of few."""
    many, few = context.size(10_000), 100
    rounds = context.rounds(41)
    homes = [_talks(context.work / f"talks-{count}", count) for count in (many, few)]
    with ExitStack() as stack:
        one, other = (stack.enter_context(_Viewer(home)) for home in homes)
        ours, base = interleaved(rounds, one.answering("/"), other.answering("/"))
    return [
        ratio(
            "viewer-list",
            (f"the list of {many} conversations", ours),
            (f"the list of {few}", base),
            LIST_GOAL,
            rounds=rounds,
        )
    ]


def _talks(home: Path, count: int) -> Path:
    """A space of so many conversations, two messages each."""
    with Space.open(home) as space:
        space.repo.apply_writes([Create(AGENT, "agent", {"name": "Agent"})])
        agent = space.address.agent("agent")
        for start in range(0, count, _BATCH):
            writes = []
            for number in range(start, min(start + _BATCH, count)):
                rkey, at = space.repo.clock.mint(), space.now()
                uri = space.address.conversation(rkey)
                writes.append(Create(CONVERSATION, rkey, {"agent": agent, "createdAt": at}))
                state = {"conversation": uri, "updatedAt": at, "title": f"Conversation {number}"}
                writes.append(Create(CONVERSATION_STATE, rkey, state))
                for seq, role in ((1, "user"), (2, "assistant")):
                    said = {"role": role, "content": [{"type": "text", "text": f"{role} {number}"}]}
                    value = {
                        "conversation": uri,
                        "agent": agent,
                        "role": role,
                        "seq": seq,
                        "message": envelope("letta.localMessage", 1, said),
                        "createdAt": at,
                    }
                    writes.append(Create(MESSAGE, space.repo.clock.mint(), value))
            space.repo.apply_writes(writes)
    return home


class _Viewer:
    """The application as a server calls it, without the socket."""

    def __init__(self, home: Path) -> None:
        self.space = Space.open(home)
        self.app = viewer(self.space, token="t", hosts=Hosts("127.0.0.1", 7430))  # noqa: S106
        self.runner = asyncio.Runner()
        headers = dict(self._get("/", f"{TOKEN}=t")[1])
        self.cookie = headers[b"set-cookie"].partition(b";")[0]

    def __enter__(self) -> "_Viewer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.app.state.site.close()
        self.runner.close()
        self.space.close()

    def only(self) -> str:
        (conversation,) = self.space.conversations()
        return conversation.rkey

    def answering(self, path: str, **query: int) -> Callable[[], Cost]:
        """Asks for a page, which is done once before."""
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        self._page(path, asked)
        return lambda: timed(lambda: self._page(path, asked))

    def _page(self, path: str, query: str) -> None:
        status, _ = self._get(path, query)
        if status != 200:
            raise RuntimeError(f"{path} is answered with {status}")

    def _get(self, path: str, query: str) -> tuple[int, Any]:
        headers = [(b"host", _HOST)]
        if hasattr(self, "cookie"):
            headers.append((b"cookie", self.cookie))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7430),
        }
        answer: dict[str, Any] = {}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            answer.update(message)

        self.runner.run(self.app(scope, receive, send))
        return answer["status"], answer["headers"]
