"""The methods that ship: what their parameters, bodies and answers may be."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import methods
from lettaspace.atproto.cid import CID
from lettaspace.atproto.lexicon import Lexicons
from lettaspace.atproto.methods import Method, media_type, shipped
from lettaspace.errors import InvalidInput, InvalidRecord

SPACE = "com.atproto.space."
SIMPLE = "com.atproto.simplespace."
SERVER = "com.atproto.server."

ADA = "did:web:ada.example"
REF = f"at://{ADA}/space/com.example.forum/self"
URI = f"{REF}/{ADA}/com.example.note/a"
CID_TEXT = "bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
TID = "3mbo6jo6e222b"
HASH = {"$bytes": "AAAA"}
WHOLE = [("space", REF), ("repo", ADA)]
WRITE = {"space": REF, "repo": ADA, "collection": "com.example.note"}
PUBLIC = {"$type": SIMPLE + "defs#publicPolicy"}
MANAGED = {"$type": SIMPLE + "defs#managingAppPolicy", "managingApp": "did:web:app.example#x"}
OPEN = {"$type": SIMPLE + "defs#open"}
NEW = {
    "spaceType": "com.example.forum",
    "readPolicy": PUBLIC,
    "writePolicy": MANAGED,
    "appAccess": OPEN,
}


def send(nsid, body, content_type="application/json"):
    return methods.method(nsid).input(content_type, json.dumps(body).encode())


def test_what_ships():
    names = set(shipped())
    assert len([name for name in names if name.startswith(SPACE)]) == 20
    assert len([name for name in names if name.startswith(SIMPLE)]) == 8
    assert {name for name in names if not name.startswith((SPACE, SIMPLE))} == {
        SERVER + "createAppPassword",
        SERVER + "createSession",
        SERVER + "deleteSession",
        SERVER + "describeServer",
        SERVER + "getSession",
        SERVER + "listAppPasswords",
        SERVER + "refreshSession",
        SERVER + "revokeAppPassword",
        "com.atproto.identity.resolveHandle",
        "com.atproto.repo.uploadBlob",
    }
    assert shipped() is shipped()


def test_what_a_method_is():
    method = methods.method(SPACE + "getRepo")
    assert (method.kind, method.takes, method.gives) == ("query", None, "application/vnd.ipld.car")
    assert "RepoNotFound" in method.errors
    method = methods.method("com.atproto.repo.uploadBlob")
    assert (method.kind, method.takes, method.gives) == ("procedure", "*/*", methods.JSON)
    assert methods.method(SPACE + "notifyWrite").errors == {"SpaceNotFound", "FutureRev"}
    assert methods.method(SIMPLE + "putMember").gives is None
    assert repr(method) == "<procedure com.atproto.repo.uploadBlob>"


@pytest.mark.parametrize(
    "nsid", ["com.atproto.space.defs", "com.atproto.space.addMember", "", "com.example.x"]
)
def test_what_is_no_method(nsid):
    with pytest.raises(InvalidInput, match="no method"):
        methods.method(nsid)
    with pytest.raises(InvalidInput, match="no method"):
        Method(nsid, Lexicons.load("com.atproto"))


@pytest.mark.parametrize(
    ("nsid", "pairs", "params"),
    [
        (SPACE + "getRepo", WHOLE, {"excludeValues": False}),
        (SPACE + "getRepo", [*WHOLE, ("excludeValues", "true")], {"excludeValues": True}),
        (SPACE + "listRecords", WHOLE, {"limit": 50, "excludeValues": False}),
        (
            SPACE + "listRecords",
            [*WHOLE, ("limit", "1000"), ("reverse", "false"), ("cursor", URI)],
            {"limit": 1000, "excludeValues": False, "reverse": False, "cursor": URI},
        ),
        (SPACE + "listRecords", [*WHOLE, ("limit", "")], {"limit": 50, "excludeValues": False}),
        (SPACE + "listRecords", [*WHOLE, ("limit", "007")], {"limit": 7, "excludeValues": False}),
        (SPACE + "listBlobs", [*WHOLE, ("since", TID)], {"limit": 500, "since": TID}),
        (SPACE + "listRepoOps", WHOLE, {"limit": 100, "excludeValues": False}),
        (SPACE + "getBlob", [*WHOLE, ("cid", CID_TEXT)], {"cid": CID_TEXT}),
        (
            SPACE + "getRecord",
            [*WHOLE, ("collection", "com.example.note"), ("rkey", "a:~.b")],
            {"collection": "com.example.note", "rkey": "a:~.b"},
        ),
    ],
)
def test_parameters_of_a_repo(nsid, pairs, params):
    found = methods.method(nsid).params(pairs)
    assert found == {"space": REF, "repo": ADA} | params
    for name, value in params.items():
        assert type(found[name]) is type(value)


@pytest.mark.parametrize(
    ("nsid", "pairs", "params"),
    [
        (SPACE + "listSpaces", [], {"limit": 50}),
        (SPACE + "listSpaces", [("spaceType", "com.example.forum")], None),
        (SPACE + "listRepos", [("space", REF), ("cursor", "0")], None),
        (SPACE + "listRepos", [("space", REF), ("cursor", "zzzzzzzzzzzzzz")], None),
        (SIMPLE + "checkUserAccess", [("space", REF), ("user", ADA), ("access", "read")], None),
        (SIMPLE + "checkUserAccess", [("space", REF), ("user", ADA), ("access", "other")], None),
        ("com.atproto.identity.resolveHandle", [("handle", "ada.example")], None),
        (SERVER + "describeServer", [("anything", "at all"), ("anything", "twice")], {}),
        (SERVER + "describeServer", [("", "")], {}),
    ],
)
def test_other_parameters(nsid, pairs, params):
    found = methods.method(nsid).params(pairs)
    if params is None:
        assert dict(pairs).items() <= found.items()
    else:
        assert found == params


@pytest.mark.parametrize(
    ("nsid", "pairs", "problem"),
    [
        (SPACE + "getRepo", [], "space: is missing"),
        (SPACE + "getRepo", [("space", REF)], "repo: is missing"),
        (SPACE + "getRepo", [("space", ""), ("repo", ADA)], "space: is missing"),
        (SPACE + "getRepo", [("space", REF + "/"), ("repo", ADA)], "space: is not a space-ref"),
        (SPACE + "getRepo", [("space", REF + "#/a"), ("repo", ADA)], "space: is not a space-ref"),
        (SPACE + "getRepo", [("space", URI), ("repo", ADA)], "space: is not a space-ref"),
        (SPACE + "getRepo", [("space", REF), ("repo", "ada.example")], "repo: is not a did"),
        (SPACE + "getRepo", [*WHOLE, ("repo", ADA)], "repo: is given twice"),
        (SPACE + "getRepo", [*WHOLE, ("excludeValues", "1")], "excludeValues: is neither"),
        (SPACE + "getRepo", [*WHOLE, ("excludeValues", "True")], "excludeValues: is neither"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "0")], "limit: is below 1"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "1001")], "limit: is above 1000"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "-5")], "limit: is below 1"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "1.0")], "limit: is not an integer"),
        (SPACE + "listRecords", [*WHOLE, ("limit", " 5")], "limit: is not an integer"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "٣")], "limit: is not an integer"),
        (SPACE + "listRecords", [*WHOLE, ("limit", "1" * 5000)], "limit: is not an integer"),
        (SPACE + "listRecords", [*WHOLE, ("limit", str(2**53))], "limit: is not an integer"),
        (SPACE + "listRecords", [*WHOLE, ("collection", "*")], "collection: is not a nsid"),
        (SPACE + "listRecords", [*WHOLE, ("cursor", "a\0b")], "cursor: holds a NUL"),
        (SPACE + "listRepoOps", [*WHOLE, ("since", "now")], "since: is not a tid"),
        (SPACE + "listSpaces", [("limit", "101")], "limit: is above 100"),
        (SPACE + "listSpaces", [("did", "ada.example")], "did: is not a did"),
        (SPACE + "getBlob", [*WHOLE, ("cid", "Qm123")], "cid: is not a cid"),
        (
            SPACE + "getRecord",
            [*WHOLE, ("collection", "com.example.note"), ("rkey", "..")],
            "rkey: is not a record-key",
        ),
        (SIMPLE + "checkUserAccess", [("space", REF), ("user", ADA)], "access: is missing"),
        ("com.atproto.identity.resolveHandle", [("handle", ADA)], "handle: is not a handle"),
    ],
)
def test_bad_parameters(nsid, pairs, problem):
    with pytest.raises(InvalidInput, match=f"^{problem}"):
        methods.method(nsid).params(pairs)


LISTS = Lexicons(
    [
        {
            "lexicon": 1,
            "id": "com.example.many",
            "defs": {
                "main": {
                    "type": "query",
                    "parameters": {
                        "type": "params",
                        "properties": {
                            "tags": {"type": "array", "items": {"type": "string"}, "maxLength": 2},
                            "sizes": {
                                "type": "array",
                                "items": {"type": "integer", "minimum": 0},
                            },
                        },
                    },
                }
            },
        }
    ]
)


def test_lists_are_names_given_many_times():
    method = Method("com.example.many", LISTS)
    assert method.params([("tags", "b"), ("x", "y"), ("tags", "a")]) == {"tags": ["b", "a"]}
    assert method.params([("sizes", "3"), ("sizes", ""), ("sizes", "3")]) == {"sizes": [3, 3]}
    assert method.params([]) == {}
    for pairs, problem in (
        ([("tags", "a")] * 3, "tags: has 3 elements"),
        ([("sizes", "1"), ("sizes", "-1")], r"sizes\[1\]: is below 0"),
        ([("sizes", "x")], "sizes: is not an integer"),
    ):
        with pytest.raises(InvalidInput, match=f"^{problem}"):
            method.params(pairs)


@pytest.mark.parametrize(
    ("nsid", "body"),
    [
        (SPACE + "createRecord", WRITE | {"record": {}}),
        (SPACE + "createRecord", WRITE | {"record": {"text": "\ufeffé"}, "rkey": "a" * 512}),
        (
            SPACE + "createRecord",
            WRITE | {"record": {"$type": "com.example.note"}, "validate": True},
        ),
        (SPACE + "createRecord", WRITE | {"record": {"a": 2**53 - 1}, "unheard": [None]}),
        (SPACE + "putRecord", WRITE | {"record": {}, "rkey": "a"}),
        (SPACE + "deleteRecord", WRITE | {"rkey": "a"}),
        (SPACE + "applyWrites", {"space": REF, "repo": ADA, "writes": []}),
        (SPACE + "getSpaceCredential", {"space": REF}),
        (SPACE + "registerNotify", {"space": REF, "service": "did:web:s.example#sync"}),
        (SPACE + "notifyCredentialRevoked", {"space": REF, "credentials": ["a"] * 100}),
        (SPACE + "notifySpaceDeleted", {"space": REF}),
        (SIMPLE + "createSpace", NEW),
        (SIMPLE + "createSpace", NEW | {"readPolicy": {"$type": "com.example.unheardPolicy"}}),
        (SIMPLE + "updateSpace", {"space": REF}),
        (SIMPLE + "putMember", {"space": REF, "did": ADA, "read": True, "write": False}),
        (SIMPLE + "removeMember", {"space": REF, "did": ADA}),
        (SERVER + "createSession", {"identifier": "ada.example", "password": "x"}),
        (SERVER + "createAppPassword", {"name": "laptop", "privileged": False}),
    ],
)
def test_bodies(nsid, body):
    assert send(nsid, body) == body
    assert send(nsid, body, "Application/JSON; charset=utf-8") == body


def test_bodies_are_read_into_the_data_model():
    body = {"space": REF, "repo": ADA, "repoRev": TID, "hash": {"$bytes": "AQI"}}
    assert send(SPACE + "notifyWrite", body)["hash"] == b"\x01\x02"
    record = {"link": {"$link": CID_TEXT}}
    found = send(SPACE + "createRecord", WRITE | {"record": record})
    assert found["record"] == {"link": CID.parse(CID_TEXT)}


def writes(*items):
    return {"space": REF, "repo": ADA, "writes": list(items)}


CREATE = {"$type": SPACE + "applyWrites#create", "collection": "com.example.note", "value": {}}


def test_writes_are_one_of_three():
    update = CREATE | {"$type": SPACE + "applyWrites#update", "rkey": "a"}
    delete = {"$type": SPACE + "applyWrites#delete", "collection": "com.example.note", "rkey": "a"}
    body = writes(CREATE, CREATE | {"rkey": "b"}, update, delete)
    assert send(SPACE + "applyWrites", body) == body


@pytest.mark.parametrize(
    ("nsid", "body", "problem"),
    [
        (SPACE + "createRecord", [], "value: is not an object"),
        (SPACE + "createRecord", None, "value: is not an object"),
        (SPACE + "createRecord", WRITE, "record: is missing"),
        (SPACE + "createRecord", WRITE | {"record": []}, "record: is not an object"),
        (SPACE + "createRecord", WRITE | {"record": None}, "record: is not an object"),
        (
            SPACE + "createRecord",
            WRITE | {"record": HASH},
            "record: is a blob, link or bytes|record",
        ),
        (SPACE + "createRecord", WRITE | {"record": {}, "rkey": None}, "rkey: is not a string"),
        (
            SPACE + "createRecord",
            WRITE | {"record": {}, "rkey": "a/b"},
            "rkey: is not a record-key",
        ),
        (SPACE + "createRecord", WRITE | {"record": {}, "rkey": "a" * 513}, "rkey: is not a"),
        (SPACE + "createRecord", WRITE | {"record": {}, "validate": "yes"}, "validate: is not a b"),
        (SPACE + "createRecord", WRITE | {"record": {"a": 0.5}}, "JSON: number with a fraction"),
        (SPACE + "createRecord", WRITE | {"record": {"a": 2**53}}, r"record\.a: integer beyond"),
        (SPACE + "createRecord", WRITE | {"record": {"a": {"$link": "x"}}}, r"record\.a: \$link"),
        (SPACE + "createRecord", WRITE | {"record": {"$type": ""}}, r"record: \$type is not"),
        (SPACE + "createRecord", WRITE | {"record": {"a": "\ud800"}}, r"record\.a: text with a l"),
        (SPACE + "createRecord", WRITE | {"record": {}, "repo": "x"}, "repo: is not a did"),
        (SPACE + "createRecord", WRITE | {"record": {}, "space": URI}, "space: is not a space-ref"),
        (SPACE + "putRecord", WRITE | {"record": {}}, "rkey: is missing"),
        (SPACE + "applyWrites", writes({"collection": "a"}), r"writes\[0\]\.\$type: is missing"),
        (
            SPACE + "applyWrites",
            writes(CREATE, CREATE | {"$type": "com.example.x"}),
            r"writes\[1\]\.\$type: is none of the types",
        ),
        (
            SPACE + "applyWrites",
            writes(CREATE | {"$type": SPACE + "applyWrites#update"}),
            r"writes\[0\]\.rkey: is missing",
        ),
        (
            SPACE + "notifyWrite",
            {"space": REF, "repo": ADA, "repoRev": "1", "hash": HASH},
            "repoRev: is not a tid",
        ),
        (
            SPACE + "notifyWrite",
            {"space": REF, "repo": ADA, "repoRev": TID, "hash": "AAAA"},
            "hash: is not bytes",
        ),
        (
            SPACE + "notifyCredentialRevoked",
            {"space": REF, "credentials": []},
            "credentials: has 0",
        ),
        (
            SPACE + "notifyCredentialRevoked",
            {"space": REF, "credentials": ["a"] * 101},
            "credentials: has 101",
        ),
        (
            SPACE + "notifyCredentialRevoked",
            {"space": REF, "credentials": ["a", ""]},
            r"credentials\[1\]: has 0 bytes",
        ),
        (SIMPLE + "createSpace", NEW | {"skey": ".."}, "skey: is not a record-key"),
        (SIMPLE + "createSpace", NEW | {"readPolicy": {}}, r"readPolicy\.\$type: is missing"),
        (
            SIMPLE + "createSpace",
            NEW | {"readPolicy": {"$type": SIMPLE + "defs#managingAppPolicy"}},
            r"readPolicy\.managingApp: is missing",
        ),
        (SIMPLE + "createSpace", {"spaceType": "com.example.forum"}, "readPolicy: is missing"),
        (SIMPLE + "putMember", {"space": REF, "did": ADA, "read": True}, "write: is missing"),
        (SIMPLE + "putMember", {"space": REF, "did": ADA, "read": 1, "write": 1}, "read: is not a"),
        (SERVER + "createSession", {"identifier": "ada.example"}, "password: is missing"),
    ],
)
def test_bad_bodies(nsid, body, problem):
    with pytest.raises(InvalidInput, match=f"^({problem})"):
        send(nsid, body)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON: not UTF-8"),
        (b'\xef\xbb\xbf{"space":"x"}', "not JSON"),
        (b'{"space":1,"space":1}', "JSON: an object has the same key twice"),
        (b'{"space":NaN}', "JSON: number with a fraction"),
        (b'{"space":1e3}', "JSON: number with a fraction"),
        (b'{"space":' + b"9" * 5000 + b"}", "JSON: integer beyond"),
        (b'{"__proto__":1}', "value: key __proto__ is not allowed"),
        (b"[" * 100_000, "JSON: nested deeper"),
        (b'{"space":' + b"[" * 600 + b"]" * 600 + b"}", "value: nested deeper"),
    ],
)
def test_what_is_no_json_of_the_data_model(body, problem):
    with pytest.raises(InvalidInput, match=f"^{problem}"):
        methods.method(SPACE + "notifySpaceDeleted").input("application/json", body)


def test_types_of_bodies():
    body = json.dumps({"space": REF}).encode()
    for content_type in ("text/plain", "application/cbor", "application/json2", "*/*"):
        with pytest.raises(InvalidInput, match=r"^Content-Type is not application/json$"):
            methods.method(SPACE + "notifySpaceDeleted").input(content_type, body)
    for content_type in (None, "", "json", "; charset=utf-8", "a/b/c", "a b/c"):
        with pytest.raises(InvalidInput, match=r"^Content-Type is missing or malformed$"):
            methods.method(SPACE + "notifySpaceDeleted").input(content_type, body)
        with pytest.raises(InvalidInput, match=r"^Content-Type is missing or malformed$"):
            methods.method("com.atproto.repo.uploadBlob").input(content_type, body)
    assert methods.method("com.atproto.repo.uploadBlob").input("image/png", b"\x89") == {}
    assert media_type("Image/SVG+xml ;charset=x") == "image/svg+xml"


def test_methods_without_a_body():
    for nsid in (SERVER + "deleteSession", SPACE + "getRepo"):
        assert methods.method(nsid).input(None, b"") == {}
        assert methods.method(nsid).input("application/json", b"") == {}
        with pytest.raises(InvalidInput, match="takes no body"):
            methods.method(nsid).input("application/json", b"{}")


COMMIT = {"ver": 1, "hash": b"", "ikm": b"", "sig": b"", "mac": b"", "rev": TID}
OP = {"rev": TID, "collection": "com.example.note", "rkey": "a", "cid": None, "prev": CID_TEXT}
BLOB = {
    "$type": "blob",
    "ref": CID.parse("bafkreibme22gw2h7y2h7tg2fhqotaqjucnbc24deqo72b6mkl2egezxhvy"),
    "mimeType": "image/png",
    "size": 3,
}


@pytest.mark.parametrize(
    ("nsid", "value"),
    [
        (SPACE + "createRecord", {"uri": URI, "cid": CID_TEXT, "validationStatus": "unknown"}),
        (SPACE + "deleteRecord", {}),
        (SPACE + "listRepoOps", {"ops": [OP], "commit": COMMIT}),
        (SPACE + "getLatestCommit", {"commit": COMMIT}),
        (
            SPACE + "listRepos",
            {"repos": [{"did": ADA, "repoRev": TID, "hash": b"", "spaceRev": TID}], "cursor": TID},
        ),
        (SIMPLE + "listMembers", {"members": [{"did": ADA, "read": True, "write": True}]}),
        (SIMPLE + "putMember", None),
        (SPACE + "getRepo", None),
        ("com.atproto.repo.uploadBlob", {"blob": BLOB}),
        (SERVER + "describeServer", {"did": ADA, "availableUserDomains": []}),
        (
            SERVER + "createAppPassword",
            {"name": "a", "password": "b", "createdAt": "2026-01-01T00:00:00Z"},
        ),
    ],
)
def test_answers(nsid, value):
    methods.method(nsid).output(value)


@pytest.mark.parametrize(
    ("nsid", "value", "problem"),
    [
        (SPACE + "createRecord", {"uri": URI}, "cid: is missing"),
        (SPACE + "createRecord", {"uri": URI, "cid": CID.parse(CID_TEXT)}, "cid: is not a string"),
        (SPACE + "deleteRecord", None, "value: is not an object"),
        (SPACE + "listRepoOps", {"ops": [OP | {"rev": None}]}, r"ops\[0\]\.rev: is not a string"),
        (SPACE + "getLatestCommit", {"commit": COMMIT | {"sig": ""}}, "commit.sig: is not bytes"),
        (SIMPLE + "putMember", {}, "this method answers with no JSON"),
        (SPACE + "getRepo", {}, "this method answers with no JSON"),
        (SIMPLE + "getSpace", {"uri": REF}, "readPolicy: is missing"),
    ],
)
def test_bad_answers(nsid, value, problem):
    with pytest.raises(InvalidRecord, match=f"^{problem}"):
        methods.method(nsid).output(value)


@given(
    st.sampled_from(sorted(shipped())),
    st.lists(
        st.tuples(
            st.sampled_from(["space", "repo", "limit", "cursor", "excludeValues", "did"])
            | st.text(max_size=5),
            st.sampled_from([REF, ADA, "1", "true", ""]) | st.text(max_size=10),
        ),
        max_size=8,
    ),
)
def test_any_query_is_read_or_refused(nsid, pairs):
    try:
        found = methods.method(nsid).params(pairs)
    except InvalidInput:
        return
    for name, text in pairs:
        if name in found and text:
            assert found[name] in (text, text == "true") or found[name] == int(text)


@given(st.sampled_from(sorted(shipped())), st.binary(max_size=200))
def test_any_body_is_read_or_refused(nsid, body):
    for content_type in (None, "application/json", "text/plain"):
        with suppress(InvalidInput):
            assert type(methods.method(nsid).input(content_type, body)) is dict
