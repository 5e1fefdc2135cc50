"""Records against the lexicons that ship, and lexicons of others.

The first line is a collection, the rest a record; or the rest is a lexicon, and the record
`{"$type": …}` of its own is checked against it.
"""

from __future__ import annotations

import json

from lettaspace.atproto import cbor, data
from lettaspace.atproto.lexicon import Lexicons, shipped
from lettaspace.atproto.syntax import is_nsid
from lettaspace.errors import InvalidInput, InvalidRecord
from tests.fuzz.texts import outcome, text

WORDS = (
    *(b"xyz.quasigod.lab.letta.message\n", b"xyz.quasigod.lab.letta.compiledPrompt\n", b'"enum":'),
    *(b'{"lexicon":1,"id":"com.example.note","defs":{"main":{"type":"record"', b'"key":"tid"'),
    *(b'"type":"object","properties":{', b'"type":"ref","ref":"#a"', b'"type":"union","refs":['),
    *(b'"minLength":', b'"maxGraphemes":', b'"default":', b'"const":', b'"knownValues":[', b"0"),
    *(b'"type":"array","items":', b'"closed":true', b'"required":[', b'"nullable":[', b'"format":'),
)


def fuzz_lexicon(given: bytes) -> None:
    name, _, body = given.partition(b"\n")
    collection = text(name)
    value, _ = outcome(lambda: data.loads(body), InvalidRecord)
    outcome(
        lambda: shipped().check_key("xyz.quasigod.lab.letta.message", collection),
        InvalidInput,
        InvalidRecord,
    )
    if type(value) is dict and is_nsid(collection):
        _, refusal = outcome(lambda: shipped().validate_record(collection, value), InvalidRecord)
        if refusal is None:
            cbor.encode(value)
            assert value["$type"] == collection
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    lexicons, _ = outcome(lambda: Lexicons([document]), InvalidRecord)
    if lexicons is not None:
        for ref in (document["id"], *(f"{document['id']}#{one}" for one in document["defs"])):
            for each in ({"$type": ref}, value, [value], "a", 1, None):
                outcome(lambda r=ref, e=each: lexicons.validate(r, e), InvalidRecord)
