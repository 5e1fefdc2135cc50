"""The engine at a host of the August 2026 alpha: two machines and an app password."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.conversation.records import AGENT, default_space
from lettaspace.conversation.space import STORE_FILE, Space
from lettaspace.remote.hostrepo import HostRepo
from lettaspace.remote.replicas import attach
from lettaspace.remote.syncing import Syncer, SyncReport
from lettaspace.remote.xrpc import Client
from lettaspace.space.database import Database
from lettaspace.space.writes import Create
from tests.remote.august import August, august
from tests.remote.augustauth import Account
from tests.remote.auths import Bearer


class Machine:
    """A replica of an account's space, signed in with an app password."""

    def __init__(self, host: August, account: Account, home: Path) -> None:
        self.account = account
        Space.open(home).close()
        with Database.open(home / STORE_FILE, create=False) as database:
            attach(database, account.did, host.origin, signing_key=account.key.verifying_key.did)
        self.space = Space.open(home, create=False)
        login = {"identifier": account.did, "password": account.add_app_password()}
        self.client = Client(host.origin, clock=host.clock)
        session = self.client.procedure("com.atproto.server.createSession", login)
        self.client.auth = Bearer(session["accessJwt"])
        self.repo = HostRepo(self.client, str(default_space(account.did)), account.did)

    def sync(self) -> SyncReport:
        key = self.account.key.verifying_key
        return Syncer(self.space, self.repo, lambda _again: key).sync()

    def shown(self) -> dict[str, list[object]]:
        return {
            each.rkey: [
                message.payload()
                for message in self.space.conversation(each.rkey).window().messages
            ]
            for each in self.space.conversations()
        }

    def close(self) -> None:
        self.space.close()
        self.client.close()


TEXTS = ("\ufeffmarked", "half a pair \ud800", "x" * 200_000, "plain")


def message(text: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "odd": 1.5, "": 1 << 60}


@pytest.mark.parametrize("total", [50, 1000])
def test_two_machines(tmp_path: Path, total: int) -> None:
    """What that host changes in values was written in a way that it leaves alone, large leaves
    are blobs, and with 1000 new ones its log ends exactly where a page does."""
    with august(tmp_path / "august.db") as host:
        account = host.add_account()
        one = Machine(host, account, tmp_path / "one")
        two = Machine(host, account, tmp_path / "two")
        try:
            agent = one.space.create_agent("Otter")
            one.sync()
            two.sync()
            talk = one.space.create_conversation(agent)
            for text in TEXTS:
                talk.append(message(text))
            more = [Create(AGENT, f"a{n}", {"name": "Kiln"}) for n in range(total - 6)]
            for start in range(0, len(more), 200):
                one.space.repo.apply_writes(more[start : start + 200])
            assert one.sync().pushed == total
            assert len(list(one.repo.blobs())) == 1
            host.requests.clear()
            assert two.sync().created == total
            pages = [each for each in host.requests if each != "com.atproto.space.getBlob"]
            assert pages == ["com.atproto.space.listRepoOps"] * (total // 1000 + 1)
            assert two.shown() == one.shown() == {talk.rkey: [message(text) for text in TEXTS]}
            assert not two.sync().did_something

            two.space.conversation(talk.rkey).append(message("and back"))
            two.sync()
            one.sync()
            assert two.shown() == one.shown()
            assert len(one.shown()[talk.rkey]) == len(TEXTS) + 1
            commit = one.repo.latest_commit()
            assert commit is not None
            for machine in (one, two):
                assert machine.space.repo.set_hash().digest() == commit.hash
        finally:
            one.close()
            two.close()
