"""A host and a client on one machine, against what the reference's alpha did on one like it.

The reference is the branch `permissioned-data` of August 2026, measured over HTTP on loopback
with records of about 1 KB on two cores. Its times are constants here: where the machine is
another, or busy, only the figures beside them tell the host's own part. Those compare with a
bare insert of the same bytes in the same kind of database, and with a call that does nothing.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from bench.bare import Bare, PostgresBare
from bench.client import Crowd, joined
from bench.context import Context
from bench.figure import Figure, Goal, Side, ratio
from bench.measure import Cost, interleaved, timed
from bench.served import DID, NOTE, Served
from bench.words import Writer
from lettaspace.atproto import cbor
from lettaspace.space.car import read_repo

POSTGRES = "LETTASPACE_BENCH_POSTGRES"
"""The variable with the URL of an empty PostgreSQL database to measure on as well."""

CREATE = 1 / 149
CREATE_16 = 1 / 201
APPLY = 1 / 6213
GET_REPO = 0.32
LIST_OPS = 0.36
VERIFY = 0.55
READ = 6.4e-3
"""Seconds that the reference took: for a record, the whole of 10,000, or a read."""

RECORDS = 10_000
BATCH = 200
CLIENTS = 16
PARTS = 8

_BYTES = 1024
_PAGE = 1000
_OP = b'"prev":null'
"""What every entry of the log has, all records having been created once."""


def writes(context: Context) -> list[Figure]:
    """Creating records: one after the other, 16 clients at once, and 200 in a call."""
    figures = _writes(
        context, "host", context.work / "host-writes.db", Bare(context.work / "host-bare.db")
    )
    url = os.environ.get(POSTGRES)
    if url is None:
        print(f"{POSTGRES} is not set: PostgreSQL is left out", file=sys.stderr)
        return figures
    return figures + _writes(context, "host-postgres", url, PostgresBare(url))


def reads(context: Context) -> list[Figure]:
    """A repo of 10,000 records: got whole, verified, followed; and a record read by others."""
    rounds, count = context.rounds(9), context.size(RECORDS) // BATCH * BATCH
    with Served(context.work / "host-reads.db") as host:
        notes = _notes()
        for _ in range(count // BATCH):
            host.connection.ask(host.apply(list(islice(notes, BATCH))))
        return [
            *_whole(host, rounds, count),
            *_followed(host, rounds, count),
            *_read(host, rounds, context.size(1000)),
        ]


def _writes(
    context: Context, name: str, database: Path | str, bare: Bare | PostgresBare
) -> list[Figure]:
    rounds, count = context.rounds(9), context.size(1600)
    notes = _notes()
    with Served(database) as host, ExitStack() as stack:
        stack.enter_context(closing(bare))
        crowd = stack.enter_context(closing(Crowd(host.port, CLIENTS)))
        part = max(count // PARTS, CLIENTS)
        values = list(islice(notes, part))
        stored = [cbor.encode({"$type": NOTE, **value}) for value in values]
        creates = [host.create(value) for value in values]
        no_ops = [host.no_op()] * part
        batch = [dict(value) for value in islice(notes, BATCH)]
        apply, rows = host.apply(batch), [cbor.encode(value) for value in batch]
        alone, at_once, batched, insert, insert_batch, no_op, no_op_16 = interleaved(
            rounds,
            lambda: host.timed(lambda: _each(host, creates)),
            lambda: host.timed(lambda: crowd.ask(creates)),
            lambda: host.timed(lambda: host.connection.ask(apply)),
            lambda: bare.insert(stored),
            lambda: bare.insert_at_once(rows),
            lambda: host.timed(lambda: _each(host, no_ops)),
            lambda: host.timed(lambda: crowd.ask(no_ops)),
            parts=PARTS,
        )
    total, facts = part * PARTS, {"rounds": rounds, "recordBytes": len(stored[0])}
    one, many = (
        ("creating a record", alone.per(total)),
        ("the same, 16 at once", at_once.per(total)),
    )
    each = ("a record of 200 created in a call", batched.per(BATCH * PARTS))
    bare_one = ("inserting its bytes, a transaction each", insert.per(total))
    bare_each = ("inserting its bytes, 200 in a transaction", insert_batch.per(BATCH * PARTS))
    nothing = ("a call that does nothing", no_op.per(total))
    nothing_16 = ("the same, 16 at once", no_op_16.per(total))
    return [
        _faster(f"{name}-create", one, CREATE, Goal(10, at_most=False), **facts),
        ratio(f"{name}-create-insert", one, bare_one, **facts),
        ratio(f"{name}-create-no-op", one, nothing, **facts),
        _faster(f"{name}-create-16", many, CREATE_16, Goal(10, at_most=False), **facts),
        ratio(f"{name}-create-16-insert", many, bare_one, **facts),
        ratio(f"{name}-create-16-no-op", many, nothing_16, **facts),
        _faster(f"{name}-apply-200", each, APPLY, Goal(3, at_most=False), **facts),
        ratio(f"{name}-apply-200-insert", each, bare_each, **facts),
    ]


def _whole(host: Served, rounds: int, count: int) -> list[Figure]:
    request, no_op = host.get("getRepo"), host.no_op()
    body = joined(host.connection.ask(request).body)
    key = host.key

    def verify() -> None:
        _, index, records = read_repo(_pieces(body), space=host.space, author=DID, key=key)
        if len(index) != count or sum(1 for _ in records) != count:
            raise RuntimeError("the repo is not whole")

    got, verified, nothing = interleaved(
        rounds,
        lambda: host.timed(lambda: host.connection.ask(request)),
        lambda: timed(verify),
        lambda: host.timed(lambda: _each(host, [no_op] * 100)),
    )
    facts = {"rounds": rounds, "bytes": len(body), "records": count}
    share = count / RECORDS
    whole, checked = ("getting a repo of 10,000 records", got), ("verifying it", verified)
    return [
        _faster("host-get-repo", whole, GET_REPO * share, Goal(4, at_most=False), **facts),
        ratio(
            "host-get-repo-no-op", whole, ("a call that does nothing", nothing.per(100)), **facts
        ),
        _faster("host-verify", checked, VERIFY * share, Goal(4, at_most=False), **facts),
    ]


def _followed(host: Served, rounds: int, count: int) -> list[Figure]:
    def follow() -> None:
        # Only the cursor at the end is looked at: what a client makes of a page is its own cost.
        found, more = 0, {}
        while True:
            body = host.connection.ask(host.get("listRepoOps", limit=_PAGE, **more)).body
            found += body.count(_OP)
            _, mark, rest = body[-100:].rpartition(b'"cursor":"')
            if not mark:
                break
            more = {"cursor": rest.partition(b'"')[0].decode()}
        if found != count:
            raise RuntimeError("the log is not whole")

    (cost,) = interleaved(rounds, lambda: host.timed(follow))
    what = ("reading 10,000 entries of a log with their records", cost)
    reference = LIST_OPS * count / RECORDS
    return [_faster("host-list-ops", what, reference, None, rounds=rounds, records=count)]


def _read(host: Served, rounds: int, count: int) -> list[Figure]:
    asked = host.connection.ask(host.get("listRecords", collection=NOTE, limit=1))
    rkey = json.loads(asked.body)["records"][0]["rkey"]
    holder, of_alpha = host.holder("signature"), host.holder("dpop")
    own = [host.get("getRecord", collection=NOTE, rkey=rkey)] * count
    signed = [holder.get("getRecord", collection=NOTE, rkey=rkey)] * count
    no_ops = [host.no_op()] * count

    def proven() -> Cost:
        requests = [of_alpha.get("getRecord", collection=NOTE, rkey=rkey) for _ in range(count)]
        return host.timed(lambda: _each(host, requests))

    costs = interleaved(
        rounds,
        lambda: host.timed(lambda: _each(host, signed)),
        proven,
        lambda: host.timed(lambda: _each(host, own)),
        lambda: host.timed(lambda: _each(host, no_ops)),
    )
    read, read_alpha, read_own, nothing = (cost.per(count) for cost in costs)
    idle, goal = ("a call that does nothing", nothing), Goal(2, at_most=False)
    one = ("reading a record with a credential and a signature", read)
    other = ("reading a record with a credential and a DPoP proof", read_alpha)
    return [
        _faster("host-read", one, READ, goal, rounds=rounds),
        ratio("host-read-no-op", one, idle, rounds=rounds),
        _faster("host-read-dpop", other, READ, goal, rounds=rounds),
        ratio("host-read-dpop-no-op", other, idle, rounds=rounds),
        ratio("host-read-own-no-op", ("reading one's own", read_own), idle, rounds=rounds),
    ]


def _faster(
    name: str,
    measured: tuple[str, Cost],
    reference: float,
    goal: Goal | None,
    *,
    rounds: int,
    **facts: int,
) -> Figure:
    """How many times faster than the reference."""
    what, cost = measured
    return Figure(
        name,
        reference / cost.wall,
        Side.of(what, cost),
        Side("what the reference took on a machine like that of 2026", reference),
        goal,
        None,
        rounds,
        facts,
    )


def _each(host: Served, requests: Sequence[bytes]) -> None:
    ask = host.connection.ask
    for request in requests:
        ask(request)


def _pieces(body: bytes) -> Iterator[bytes]:
    size = 256 * 1024
    return (body[at : at + size] for at in range(0, len(body), size))


def _notes() -> Iterator[dict[str, Any]]:
    """Records that have about 1 KB each."""
    rng = Random(7)
    writer = Writer(rng)
    while True:
        text = writer.prose(180).encode()[: _BYTES - 160].decode(errors="ignore")
        yield {
            "$type": NOTE,
            "text": text,
            "name": writer.name(),
            "tags": [writer.name(), writer.name()],
            "number": rng.getrandbits(40),
            "createdAt": "2026-08-20T12:00:00.000Z",
        }
