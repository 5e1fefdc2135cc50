"""DID documents: what of them is used; what is malformed is an error and has no substitute."""

from __future__ import annotations

from typing import Any

import base58
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.keys import SigningKey
from lettaspace.errors import InvalidInput, NotFound
from lettaspace.network.didweb import document, document_url
from lettaspace.network.documents import MAX_ENTRIES, Document

DID = "did:web:ada.example"
ORIGIN = "https://host.example"
KEY = SigningKey.from_bytes("secp256k1", b"\x07" * 32).verifying_key
SPACE_KEY = SigningKey.from_bytes("p256", b"\x08" * 32).verifying_key


def method(**changes: Any) -> dict[str, Any]:
    return {
        "id": f"{DID}#atproto",
        "type": "Multikey",
        "controller": DID,
        "publicKeyMultibase": KEY.multikey,
    } | changes


def service(**changes: Any) -> dict[str, Any]:
    return {
        "id": "#atproto_pds",
        "type": "AtprotoPersonalDataServer",
        "serviceEndpoint": ORIGIN,
    } | changes


def read(*, methods: Any = (), services: Any = (), names: Any = ()) -> Document:
    parts = {"verificationMethod": methods, "service": services, "alsoKnownAs": names}
    lists = {k: list(v) if type(v) is tuple else v for k, v in parts.items()}
    return Document.read({"id": DID} | lists, DID)


def test_what_this_host_writes_can_be_read() -> None:
    made = document(DID, ORIGIN, KEY, handle="ada.example", space_key=SPACE_KEY)
    found = Document.read(made, DID)
    assert found.key("#atproto") == KEY
    assert found.key("#atproto_space") == SPACE_KEY
    assert found.handles == ("ada.example",)
    assert found.space_host() == ORIGIN
    assert found.endpoint("#atproto_pds", "AtprotoPersonalDataServer") == ORIGIN
    assert made == {
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"],
        "id": DID,
        "alsoKnownAs": ["at://ada.example"],
        "verificationMethod": [
            {
                "id": f"{DID}#{name}",
                "type": "Multikey",
                "controller": DID,
                "publicKeyMultibase": key.multikey,
            }
            for name, key in (("atproto", KEY), ("atproto_space", SPACE_KEY))
        ],
        "service": [
            {
                "id": "#atproto_pds",
                "type": "AtprotoPersonalDataServer",
                "serviceEndpoint": ORIGIN,
            },
            {
                "id": "#atproto_space_host",
                "type": "AtprotoSpaceHost",
                "serviceEndpoint": ORIGIN,
            },
        ],
    }


def test_a_host_has_no_handle_and_one_key() -> None:
    made = document("did:web:host.example", ORIGIN, KEY)
    assert made["alsoKnownAs"] == []
    with pytest.raises(NotFound):
        Document.read(made, "did:web:host.example").key("#atproto_space")


@pytest.mark.parametrize("value", [None, [], "x", {}, {"id": None}, {"id": f"{DID}#a"}])
def test_another_document_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        Document.read(value, DID)


@pytest.mark.parametrize("part", ["methods", "services", "names"])
@pytest.mark.parametrize("value", [None, {}, "x", [{}] * (MAX_ENTRIES + 1)], ids=repr)
def test_lists_are_lists_and_not_too_long(part: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        read(**{part: value})


class TestKeys:
    @pytest.mark.parametrize("identifier", ["#atproto", f"{DID}#atproto"])
    def test_both_ways_to_name_one(self, identifier: str) -> None:
        assert read(methods=[method(id=identifier)]).key("#atproto") == KEY

    @pytest.mark.parametrize("key", [KEY, SPACE_KEY], ids=["secp256k1", "p256"])
    @pytest.mark.parametrize("compressed", [True, False])
    def test_the_types_before_multikey(self, key: Any, compressed: bool) -> None:
        x, y = key.point
        point = bytes([2 + y[-1] % 2]) + x if compressed else b"\x04" + x + y
        type_ = {
            "secp256k1": "EcdsaSecp256k1VerificationKey2019",
            "p256": "EcdsaSecp256r1VerificationKey2019",
        }[key.curve]
        multibase = "z" + base58.b58encode(point).decode()
        found = read(methods=[method(type=type_, publicKeyMultibase=multibase)])
        assert found.key("#atproto") == key

    def test_a_space_key_is_never_the_accounts(self) -> None:
        found = read(methods=[method()])
        with pytest.raises(NotFound):
            found.key("#atproto_space")
        broken = read(methods=[method(), method(id="#atproto_space", publicKeyMultibase="zz")])
        with pytest.raises(InvalidInput):
            broken.key("#atproto_space")
        assert broken.key("#atproto") == KEY

    @pytest.mark.parametrize(
        "changes",
        [
            {"type": "JsonWebKey2020"},
            {"type": None},
            {"type": {}},
            {"type": "EcdsaSecp256k1VerificationKey2019"},  # the key is in the other form
            {"controller": "did:web:eve.example"},
            {"publicKeyMultibase": None},
            {"publicKeyMultibase": ["z"]},
            {"publicKeyMultibase": ""},
            {"publicKeyMultibase": KEY.multikey[1:]},
            {"publicKeyMultibase": KEY.multikey + "1"},
            {"publicKeyMultibase": KEY.multikey + "\n"},
            {"publicKeyMultibase": "z" + "1" * 30_000},
            {"publicKeyMultibase": KEY.did},
        ],
        ids=lambda changes: str(changes)[:50],
    )
    def test_malformed_ones(self, changes: dict[str, Any]) -> None:
        found = read(methods=[method(**changes)])
        with pytest.raises(InvalidInput):
            found.key("#atproto")

    @pytest.mark.parametrize(
        "identifier", ["atproto", "did:web:eve.example#atproto", "#Atproto", f"{DID}/#atproto"]
    )
    def test_others_are_not_this_one(self, identifier: str) -> None:
        with pytest.raises(NotFound):
            read(methods=[method(id=identifier), "#atproto"]).key("#atproto")

    def test_two_of_one_name(self) -> None:
        found = read(methods=[method(), method(id="#atproto")])
        with pytest.raises(InvalidInput):
            found.key("#atproto")


class TestServices:
    def test_the_space_host_is_its_own_entry_else_the_pds(self) -> None:
        own = service(
            id=f"{DID}#atproto_space_host",
            type="AtprotoSpaceHost",
            serviceEndpoint="https://spaces.example",
        )
        assert read(services=[service(), own]).space_host() == "https://spaces.example"
        assert read(services=[service()]).space_host() == ORIGIN
        with pytest.raises(NotFound):
            read().space_host()

    @pytest.mark.parametrize(
        "changes",
        [
            {"type": "AtprotoPersonalDataServer"},
            {"serviceEndpoint": None},
            {"serviceEndpoint": ["https://spaces.example"]},
            {"serviceEndpoint": {"uri": "https://spaces.example"}},
            {"serviceEndpoint": "http://spaces.example"},
            {"serviceEndpoint": "spaces.example"},
        ],
        ids=str,
    )
    def test_a_malformed_one_has_no_substitute(self, changes: dict[str, Any]) -> None:
        entry = service(id="#atproto_space_host", type="AtprotoSpaceHost") | changes
        with pytest.raises(InvalidInput):
            read(services=[service(), entry]).space_host()

    def test_two_of_one_name(self) -> None:
        with pytest.raises(InvalidInput):
            read(services=[service(), service()]).space_host()

    @pytest.mark.parametrize(
        ("url", "origin"),
        [
            ("https://host.example", "https://host.example"),
            ("https://Host.Example/", "https://host.example"),
            ("https://host.example:443", "https://host.example"),
            ("https://host.example:8443/", "https://host.example:8443"),
        ],
    )
    def test_endpoints_are_origins(self, url: str, origin: str) -> None:
        assert read(services=[service(serviceEndpoint=url)]).endpoint("#atproto_pds") == origin

    @pytest.mark.parametrize(
        "url",
        [
            "https://host.example/path",
            "https://host.example?",
            "https://host.example/?a",
            "https://host.example/#a",
            "https://user@host.example",
            "https://10.0.0.5",
            "http://localhost:2583",
        ],
    )
    def test_and_nothing_else(self, url: str) -> None:
        with pytest.raises(InvalidInput):
            read(services=[service(serviceEndpoint=url)]).endpoint("#atproto_pds")

    def test_this_machine_in_development(self) -> None:
        found = read(services=[service(serviceEndpoint="http://localhost:2583")])
        assert found.space_host(development=True) == "http://localhost:2583"


def test_handles_are_what_can_be_one() -> None:
    names = ["https://ada.example", "at://Ada.Example", "at://nodots", 7, "at://b.example/x", "b"]
    assert read(names=names).handles == ("ada.example",)


class TestDidWeb:
    @pytest.mark.parametrize(
        ("did", "url"),
        [
            ("did:web:host.example", "https://host.example/.well-known/did.json"),
            ("did:web:host.example%3A8443", "https://host.example:8443/.well-known/did.json"),
            ("did:web:localhost%3a2583", "https://localhost:2583/.well-known/did.json"),
        ],
    )
    def test_where_it_is(self, did: str, url: str) -> None:
        assert document_url(did) == url

    def test_this_machine_in_development(self) -> None:
        url = "http://localhost:2583/.well-known/did.json"
        assert document_url("did:web:localhost%3A2583", development=True) == url
        url = "https://host.example/.well-known/did.json"
        assert document_url("did:web:host.example", development=True) == url

    @pytest.mark.parametrize(
        "did",
        [
            "did:web:",
            "did:web:host.example:path",
            "did:web:host.example:8443",
            "did:web:host.example%2Fpath",
            "did:web:host.example%3A",
            "did:web:host.example%3A80%3A80",
            "did:web:user%40host.example",
            "did:web:%5B%3A%3A1%5D",
            "did:web:host.example#atproto",
            "did:web:host.example\n",
            "did:plc:host.example",
        ],
    )
    def test_what_it_is_not(self, did: str) -> None:
        with pytest.raises(InvalidInput):
            document_url(did)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
_names = st.sampled_from(["#atproto", "#atproto_space", "#atproto_pds", "#atproto_space_host"])
_entry = st.fixed_dictionaries(
    {},
    optional={
        "id": _names | _json,
        "type": st.sampled_from(["Multikey", "AtprotoSpaceHost"]) | _json,
        "publicKeyMultibase": st.just(KEY.multikey) | _json,
        "serviceEndpoint": st.just(ORIGIN) | _json,
    },
)


@given(
    methods=st.lists(_entry | _json, max_size=3) | _json,
    services=st.lists(_entry | _json, max_size=3) | _json,
    names=st.lists(_json, max_size=2) | _json,
)
def test_any_json_is_read_or_refused(methods: Any, services: Any, names: Any) -> None:
    try:
        found = read(methods=methods, services=services, names=names)
    except InvalidInput:
        return
    for fragment in ("#atproto", "#atproto_space"):
        try:
            assert found.key(fragment) == KEY
        except (InvalidInput, NotFound):
            continue
    try:
        assert found.space_host() == ORIGIN
    except (InvalidInput, NotFound):
        return
