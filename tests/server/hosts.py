"""Hosts on loopback, served for real, with a clock of the tests' own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from lettaspace.atproto.keys import SigningKey
from lettaspace.server.accounts import Account
from lettaspace.server.app import application
from lettaspace.server.config import Config
from lettaspace.server.host import Host
from lettaspace.viewer.server import bind
from tests.waiting import SECONDS

NOW = 1_790_000_000.0
PASSWORD = "correct horse battery"
ROOT = "/xrpc/com.atproto.server."


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Server:
    """A host that is being served, and how to talk to it."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self.host = host
        self.clock = clock
        self.client = httpx.Client(base_url=host.config.origin, trust_env=False, timeout=SECONDS)

    def add_account(self, name: str = "mira", password: str = PASSWORD) -> Account:
        """An account with the handle `name.localhost`."""
        did = f"did:web:{name}.localhost%3A{self.host.config.origin.rpartition(':')[2]}"
        key = SigningKey.generate()
        return self.host.accounts.add(f"{name}.localhost", did, password=password, key=key)

    def sign_in(self, name: str = "mira.localhost", password: str = PASSWORD) -> dict[str, Any]:
        answer = self.post("createSession", {"identifier": name, "password": password})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, method: str, body: Any = None, token: str | None = None) -> httpx.Response:
        """Calls a procedure of com.atproto.server."""
        return self.client.post(ROOT + method, json=body, headers=_bearer(token))

    def get(self, method: str, token: str | None = None) -> httpx.Response:
        return self.client.get(ROOT + method, headers=_bearer(token))


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


@contextmanager
def serving(target: Path | str, clock: Clock | None = None, **settings: Any) -> Iterator[Server]:
    """A development host with its database at `target`."""
    clock = clock or Clock()
    bound = bind(port=0)
    config = Config(f"http://localhost:{bound.port}", target, development=True, **settings)
    with Host.open(config, clock=clock, checking=True) as host:
        server = uvicorn.Server(
            uvicorn.Config(application(host), log_config=None, log_level="critical", ws="none")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.socket]})
        thread.start()
        talking = Server(host, clock)
        try:
            yield talking
        finally:
            talking.client.close()
            server.should_exit = True
            thread.join()
            bound.socket.close()
