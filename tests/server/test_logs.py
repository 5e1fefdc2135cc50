"""Logs: a line for each request, and whatever a request held is in none of them."""

from __future__ import annotations

import io
import json
import logging
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.server import logs, vault
from lettaspace.server.calls import Answer, Call
from lettaspace.server.config import Level
from lettaspace.server.host import Host
from tests.server.hosts import PASSWORD, Server, serving
from tests.server.parties import NOTE, SPACE, Reader, User

SECRET = "xyzzy-plugh-4711"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged at level info; afterwards logging is as it was."""
    root, ours = logging.getLogger(), logging.getLogger(logs.OURS)
    before = [(each, each.handlers[:], each.level, each.propagate) for each in (root, ours)]
    monkeypatch.setattr(logging, "raiseExceptions", True)
    stream = io.StringIO()
    logs.install("info", stream)
    try:
        yield stream
    finally:
        for each, handlers, level, propagate in before:
            each.handlers[:] = handlers
            each.setLevel(level)
            each.propagate = propagate


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "host.db", log="info") as running:
        yield running


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_for_each_request(lines: io.StringIO, server: Server) -> None:
    mira, otto = User(server, "mira"), User(server, "otto")
    space = mira.create()
    body = {"space": space, "repo": mira.did, "collection": NOTE, "record": {"text": "x"}}
    size = len(server.client.build_request("POST", "/", json=body).content)
    mira.post(SPACE + "createRecord", **body)
    otto.post(SPACE + "createRecord", **body)
    listed = mira.get(SPACE + "listRecords", space=space, repo=mira.did)
    server.client.get("/xrpc/com.atproto.server.describeServer")
    server.client.get("/robots.txt")
    found = read(lines)
    assert [line["method"].rpartition(".")[2] for line in found] == [
        "createSession", "createSession", "createSpace", "createRecord", "createRecord",
        "listRecords", "describeServer", "txt",
    ]  # fmt: skip
    for line in found:
        assert line["level"] == "info"
        assert line["ms"] > 0
        assert line["time"].endswith("Z")
    assert [line["status"] for line in found] == [200, 200, 200, 200, 403, 200, 200, 200]
    assert [line.get("error") for line in found if line["status"] != 200] == ["Forbidden"]
    assert [line["received"] for line in found[3:5]] == [size, size]
    assert found[5]["sent"] == len(listed.content)
    # The same account has the same name, which only the database's key can make.
    key = vault.secret(server.host.database, logs.KEY)
    names = [logs.name(each.did, key) for each in (mira, otto)]
    assert [line.get("caller") for line in found[2:]] == [
        names[0], names[0], names[1], names[0], None, None,
    ]  # fmt: skip
    assert logs.name(mira.did, b"another key") != names[0]


def test_who_calls_for_another_host_or_with_a_credential(
    lines: io.StringIO, server: Server
) -> None:
    mira = User(server, "mira")
    space = mira.create()
    Reader(server).open(mira, space).get(SPACE + "listRepos", mira.did, space=space)
    body = {"space": space, "credentials": ["some"]}
    mira.service_post(server, SPACE + "notifyCredentialRevoked", mira.did, **body)
    found = {line["method"].removeprefix(SPACE): line for line in read(lines)}
    key = vault.secret(server.host.database, logs.KEY)
    assert "caller" not in found["listRepos"]
    assert found["notifyCredentialRevoked"]["caller"] == logs.name(mira.did, key)


class Planted:
    """Secrets at every place that a request has; `send` them and `find` what leaked."""

    def __init__(self, server: Server, user: User, space: str) -> None:
        self.server, self.user, self.space = server, user, space
        self.secrets = {
            SECRET, PASSWORD, user.did, "mira", space, user.token, user.token[-20:],
            b64encode(SECRET.encode()).decode().rstrip("=")[:-1], "127.0.0.1",
        }  # fmt: skip

    def find(self, text: str) -> list[str]:
        return [secret for secret in sorted(self.secrets) if secret in text]

    def send(self) -> None:
        get, post = self.server.client.get, self.server.client.post
        bearer = self.user.bearer
        more = bearer | {"x-secret": SECRET, "cookie": SECRET, "user-agent": SECRET}
        where = {"space": self.space, "repo": self.user.did}
        note = where | {"collection": NOTE, "record": {"text": SECRET}}
        methods = sorted(self.server.host.xrpc.nsids)
        # In URLs and queries, of methods and paths that there are and that there are not.
        for path in (*(f"/xrpc/{nsid}" for nsid in methods), "/", f"/{SECRET}", f"/xrpc/{SECRET}"):
            for query in (f"?{SECRET}={SECRET}", f"?space={SECRET}&cursor={SECRET}&repo={SECRET}"):
                get(path + query, headers=more)
                get(path + query, headers={"authorization": f"Bearer {SECRET}"})
        # In bodies: good ones, ones that fit no schema, ones that are no JSON.
        for nsid in methods:
            for body in (note, {SECRET: SECRET}, where | {"collection": SECRET}, [SECRET]):
                post(f"/xrpc/{nsid}", json=body, headers=more)
            json_type = {"content-type": "application/json"}
            post(f"/xrpc/{nsid}", content=SECRET.encode(), headers=more | json_type)
            post(f"/xrpc/{nsid}", content=SECRET.encode(), headers=more | {"content-type": SECRET})
        # In tokens and proofs of every kind.
        forged = b64encode(json.dumps({"typ": SECRET, "alg": SECRET}).encode()).decode()
        for scheme in ("Bearer", "Atproto-Space", "DPoP", SECRET):
            for token in (SECRET, f"{forged}.{forged}.{SECRET}"):
                fields = {
                    "authorization": f"{scheme} {token}",
                    "atproto-space-audience": SECRET,
                    "signature-input": f'atproto-space=("{SECRET}");keyid="{SECRET}"',
                    "signature": f"atproto-space=:{forged}:",
                    "dpop": SECRET,
                }
                get(f"/xrpc/{SPACE}getRecord", params=where, headers=fields)
                get(f"/xrpc/{SPACE}listRepos", params=where, headers=fields)
                for nsid in ("getSpaceCredential", "notifyWrite", "registerNotify"):
                    post(f"/xrpc/{SPACE}{nsid}", json=note, headers=fields)
        # In what is no HTTP, and in a request that is not finished.
        port = int(self.server.host.config.origin.rpartition(":")[2])
        for data in (
            f"{SECRET}\r\n\r\n",
            f"GET /{SECRET} HTTP/9.9\r\n{SECRET}\r\n\r\n",
            f"POST /xrpc/{SPACE}putRecord HTTP/1.1\r\nContent-Length: 99\r\n\r\n{SECRET}",
        ):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(data.encode())


def test_no_secret_is_logged(
    lines: io.StringIO, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    # Handlers that break with the secret in what they raise, at once and in the middle.
    def breaks(_: Host, call: Call) -> Answer:
        raise RuntimeError(f"{SECRET} {call.params} {call.headers!r}")

    def breaks_later(_: Host, call: Call) -> Answer:
        def pieces() -> Iterator[bytes]:
            yield SECRET.encode() * 10_000
            raise ValueError(SECRET)

        return Answer.raw(pieces(), "application/vnd.ipld.car")

    server.host.xrpc._checking = False
    mira = User(server, "mira")
    space = mira.create()
    server.host.add(SPACE + "getLatestCommit", breaks)
    server.host.add(SPACE + "getRepo", breaks_later)
    planted = Planted(server, mira, space)
    where = {"space": space, "repo": mira.did}
    assert mira.get(SPACE + "getLatestCommit", **where).status_code == 500
    with pytest.raises(Exception, match=r"incomplete|disconnected|closed"):
        mira.get(SPACE + "getRepo", **where)
    planted.send()
    text = lines.getvalue()
    assert planted.find(text) == []
    assert planted.find("".join(capfd.readouterr())) == []
    found = read(lines)
    assert len(found) > 200
    # What failed is told of: that it did, and where.
    faults = [line["message"] for line in found if line["level"] == "error"]
    assert any("getLatestCommit failed: RuntimeError at " in each for each in faults)
    assert any("getRepo failed: ValueError at " in each for each in faults)
    broken = [line for line in found if line.get("broken")]
    assert {line["method"] for line in broken} == {SPACE + "getRepo"}
    assert {line["method"] for line in found if line.get("status") == 404} == {"other"}
    # The test finds what it looks for.
    assert planted.find(f"GET /?x={SECRET}") == [SECRET]


def test_what_other_libraries_say_is_not_kept(lines: io.StringIO) -> None:
    other = logging.getLogger("asyncio")
    try:
        raise ValueError(SECRET)
    except ValueError:
        other.exception("task %s failed", SECRET)
    other.warning("not even this: %s", SECRET)
    logging.getLogger("lettaspace.other").error("ours: %s", "plain")
    (theirs, ours) = read(lines)
    assert theirs.keys() == {"time", "level", "logger", "exception"}
    assert (theirs["logger"], theirs["level"], theirs["exception"]) == (
        "asyncio", "error", "ValueError",
    )  # fmt: skip
    assert ours["message"] == "ours: plain"
    assert SECRET not in lines.getvalue()


@pytest.mark.parametrize(("level", "lines_"), [("off", 0), ("error", 1), ("info", 2)])
def test_levels(lines: io.StringIO, level: Level, lines_: int) -> None:
    stream = io.StringIO()
    logs.install(level, stream)
    logger = logging.getLogger("lettaspace.server")
    logger.info("this")
    logger.error("that")
    assert len(read(stream)) == lines_


def test_a_line_that_cannot_be_written(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "no space left")

    logs.install("info", Full())
    logging.getLogger("lettaspace.server").error("%s", SECRET)
    assert capsys.readouterr() == ("", "")


def test_logs_are_off_unless_a_process_asks(tmp_path: Path) -> None:
    with serving(tmp_path / "host.db") as server:
        assert server.host.config.log == "off"
        assert server.client.get("/").status_code == 200
    assert logging.getLogger(logs.OURS).handlers == []
