"""Metrics: what is counted and what is not said, and where they are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import delete, insert

from lettaspace.errors import StoreUnavailable
from lettaspace.server import tables
from lettaspace.server.metrics import LOOPBACK, Metrics, MetricsServer
from lettaspace.server.outbox import WINDOW
from lettaspace.space.database import Database
from tests.ports import free_ports
from tests.server.hosts import NOW, Clock, Server, serving
from tests.server.parties import NOTE, SPACE, Reader, User
from tests.waiting import SECONDS

Sample = tuple[str, tuple[tuple[str, str], ...]]


def scrape(port: int) -> dict[Sample, float]:
    answer = httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False, timeout=SECONDS)
    assert answer.status_code == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def requests(found: dict[Sample, float]) -> dict[tuple[str, str, str], float]:
    """By method, status and error."""
    return {
        (labels["method"], labels["status"], labels["error"]): value
        for (name, pairs), value in found.items()
        if name == "lettaspace_requests_total" and (labels := dict(pairs))
    }


@pytest.fixture
def server(target: str, clock: Clock) -> Iterator[Server]:
    with serving(target, clock, metrics_ports=free_ports()) as running:
        yield running


def test_requests_writes_and_blobs(server: Server) -> None:
    port = server.host.config.metrics_ports[0]
    before = scrape(port)
    assert requests(before) == {}
    assert before["lettaspace_requests_active", ()] == 0
    assert before["lettaspace_writes_total", ()] == 0
    mira = User(server, "mira")
    space = mira.create()
    where = {"space": space, "repo": mira.did}
    note = {"collection": NOTE, "record": {"text": "x"}}
    headers = mira.bearer | {"content-type": "text/plain"}
    upload = server.client.post(
        "/xrpc/com.atproto.repo.uploadBlob", content=b"a blob", headers=headers
    )
    blob = upload.json()["blob"]
    record = {"text": "x", "file": blob}
    assert (
        mira.post(SPACE + "createRecord", **where, **note | {"record": record}).status_code == 200
    )
    assert mira.post(SPACE + "putRecord", **where, **note, rkey="a").status_code == 200
    assert mira.post(SPACE + "createRecord", **where, **note, rkey="a").status_code == 400
    kinds = {"create": {"value": {}}, "update": {"value": {}}, "delete": {}}
    writes = [
        {"$type": f"{SPACE}applyWrites#{kind}", "collection": NOTE, "rkey": "b"} | value
        for kind, value in kinds.items()
    ]
    assert mira.post(SPACE + "applyWrites", **where, writes=writes).status_code == 200
    assert mira.post(SPACE + "applyWrites", **where, writes=[]).status_code == 200
    cid = blob["ref"]["$link"]
    assert mira.get(SPACE + "getBlob", **where, cid=cid).content == b"a blob"
    reader = Reader(server).open(mira, space)
    assert reader.get(SPACE + "getRepo", mira.did, **where).status_code == 200
    # Nothing that a client makes up becomes a label.
    server.client.get("/xrpc/my.secret.method")
    server.client.get("/secret")
    server.client.get("/_health")
    found = scrape(port)
    assert found["lettaspace_writes_total", ()] == 3
    operations = {kind: found["lettaspace_operations_total", (("kind", kind),)] for kind in kinds}
    assert operations == {"create": 2, "update": 2, "delete": 1}
    for direction in ("in", "out"):
        assert found["lettaspace_blob_bytes_total", (("direction", direction),)] == 6
    assert requests(found) == {
        ("com.atproto.server.createSession", "200", ""): 1,
        ("com.atproto.simplespace.createSpace", "200", ""): 1,
        ("com.atproto.repo.uploadBlob", "200", ""): 1,
        (SPACE + "createRecord", "200", ""): 1,
        (SPACE + "createRecord", "400", "RecordAlreadyExists"): 1,
        (SPACE + "putRecord", "200", ""): 1,
        (SPACE + "applyWrites", "200", ""): 2,
        (SPACE + "getBlob", "200", ""): 1,
        (SPACE + "getDelegationToken", "200", ""): 1,
        (SPACE + "getSpaceCredential", "200", ""): 1,
        (SPACE + "getRepo", "200", ""): 1,
        ("other", "501", "MethodNotImplemented"): 1,
        ("other", "404", "XRPCNotSupported"): 1,
        ("/_health", "200", ""): 1,
    }
    seconds = found["lettaspace_request_seconds_count", (("method", SPACE + "applyWrites"),)]
    assert seconds == 2
    text = httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False, timeout=SECONDS).text
    for secret in ("secret", mira.did, "mira", space, cid, "127.0.0.1", mira.token[:20]):
        assert secret not in text


def test_the_outbox(database: Database, clock: Clock) -> None:
    metrics = Metrics()
    metrics.watch_outbox(database, clock)
    value = metrics.registry.get_sample_value
    assert (value("lettaspace_outbox_writes"), value("lettaspace_outbox_age_seconds")) == (0, 0)
    row: dict[str, Any] = {
        "space": "at://did:web:a.test/space/org.example.room/self",
        "rev": "3kznmn7xqxl22",
    }
    with database.write() as connection:
        for name, age in (("b", 5), ("c", 70)):
            times = {"next_at": int(NOW), "deadline": int(NOW) - age + WINDOW}
            row |= {"repo": f"did:web:{name}.test", "hash": b"x" * 32} | times
            connection.execute(insert(tables.outbox).values(row))
    assert (value("lettaspace_outbox_writes"), value("lettaspace_outbox_age_seconds")) == (2, 70)
    with database.write() as connection:
        connection.execute(delete(tables.outbox))
    assert value("lettaspace_outbox_writes") == 0


def test_a_store_that_is_not_there_leaves_a_gap(tmp_path: Path, clock: Clock) -> None:
    class Gone:
        def read(self) -> None:
            raise StoreUnavailable("cannot use it")

    metrics = Metrics()
    metrics.watch_outbox(Gone(), clock)  # type: ignore[arg-type]
    assert metrics.registry.get_sample_value("lettaspace_outbox_writes") is None
    assert metrics.registry.get_sample_value("lettaspace_writes_total") == 0


def test_each_process_has_a_port_of_its_own() -> None:
    ports = free_ports(2)
    first = ports[0]
    servers = [MetricsServer(Metrics(), ports) for _ in range(2)]
    try:
        for server in servers:
            server.start()
        assert [server.port for server in servers] == list(ports)
        late = MetricsServer(Metrics(), ports)
        with pytest.raises(StoreUnavailable, match=str(first)):
            late.start()
        servers[0].stop()
        late.start()
        servers.append(late)
        assert late.port == first
        assert scrape(first)["lettaspace_writes_total", ()] == 0
    finally:
        for server in servers:
            server.stop()


def test_there_are_none_unless_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path / "host.db") as server:
        assert server.client.get("/metrics").status_code == 404
        assert not any(isinstance(each, MetricsServer) for each in server.host.workers)
