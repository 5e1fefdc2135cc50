"""Parameters and bodies of every method: the first byte chooses one, a line is the query, the
rest is the body."""

from __future__ import annotations

from lettaspace.atproto import cbor, data
from lettaspace.atproto.methods import JSON, media_type, shipped
from lettaspace.errors import InvalidInput, InvalidRecord
from lettaspace.server.incoming import read_query
from tests.fuzz.texts import outcome

WORDS = (
    *(b"space=at://did:web:ada.example/space/com.example.forum/self", b"&repo=did:web:bob.example"),
    *(b"&limit=50", b"&cursor=", b"&collection=com.example.note", b"&rkey=self", b"&reverse=true"),
    *(b'"space":"at://did:web:ada.example/space/com.example.forum/self"', b'"writes":[', b"%00"),
    *(b'"$type":"com.atproto.space.applyWrites#create"', b'"record":{}', b'"hash":{"$bytes":""}'),
)
NSIDS = sorted(shipped())


def fuzz_methods(given: bytes) -> None:
    method = shipped()[NSIDS[given[0] % len(NSIDS)]] if given else shipped()[NSIDS[0]]
    query, _, body = given[1:].partition(b"\n")
    pairs, _ = outcome(lambda: read_query(query), InvalidInput)
    params, _ = outcome(lambda: method.params(pairs or []), InvalidInput)
    if params is not None:
        cbor.encode(params)
    content_type = method.takes if method.takes != "*/*" else query.decode("latin-1")
    outcome(lambda: media_type(query.decode("latin-1")), InvalidInput)
    value, refusal = outcome(lambda: method.input(content_type, body), InvalidInput)
    if refusal is None and method.takes == JSON:
        assert value is not None
        assert method.input(JSON, data.dumps(value).encode()) == value
        cbor.encode(value)
    parsed, _ = outcome(lambda: data.loads(body), InvalidRecord)
    if parsed is not None:
        outcome(lambda: method.output(parsed), InvalidRecord)
