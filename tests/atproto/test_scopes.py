"""Scopes, against vectors of the reference, and permission sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.scopes import ACTIONS, ANY, MANAGEMENT, Grant, Include, SpaceScope
from lettaspace.atproto.uri import SpaceRef
from lettaspace.errors import InvalidInput, Refused

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors/scopes.json").read_text())
A, B = VECTORS["did_A"], VECTORS["did_B"]
SPACES = {
    name: SpaceRef(parts["authority"], parts["type"], parts["skey"])
    for name, parts in VECTORS["spaces"].items()
}
NOTE = "com.example.note"
SPACE = SpaceRef(A, "com.example.group", "k")


def matches(scope: SpaceScope) -> list[str]:
    """The targets of the vectors that a scope allows, by their names there."""
    found = []
    for name, space in SPACES.items():
        for target, asked in VECTORS["targets"].items():
            if "manage" in asked:
                allowed = scope.manages(space, asked["manage"])
            else:
                allowed = scope.allows(space, asked["action"], asked.get("collection"))
            if allowed:
                found.append(f"{name}: {target}")
    return found


def test_every_vector_is_run() -> None:
    assert (len(VECTORS["cases"]), len(SPACES), len(VECTORS["targets"])) == (44, 4, 9)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["scope"])
def test_scope_vector(case: dict[str, Any]) -> None:
    if not case["valid"]:
        with pytest.raises(InvalidInput, match="scope: "):
            SpaceScope.parse(case["scope"])
        return
    scope = SpaceScope.parse(case["scope"])
    parsed = case["parsed"]
    collections = set(parsed["collection"])
    assert (scope.type, scope.authority, scope.skey) == tuple(
        parsed[name] for name in ("type", "authority", "skey")
    )
    assert scope.collections == ({ANY} if ANY in collections else collections)
    assert (scope.actions, scope.manage) == (set(parsed["action"]), set(parsed["manage"]))
    assert str(scope) == case["normalized"]
    assert SpaceScope.parse(str(scope)) == scope
    resolved = scope.resolve(A)
    assert str(resolved) == case["after_resolving_self_to_A"]
    assert matches(resolved) == case["matches_after_resolving_self"]
    declared = resolved.with_default_collections([NOTE])
    assert str(declared) == case["after_default_collections_note"]
    assert matches(declared) == case["matches_with_default_collection_note"]
    if scope.authority == "self":
        assert matches(scope) == []


def test_self_is_whoever_it_is_resolved_to() -> None:
    scope = SpaceScope.parse("space:com.example.group")
    assert [name for name, space in SPACES.items() if scope.resolve(B).allows(space, "read")] == [
        "B group k"
    ]
    assert scope.resolve(A).resolve(B) == scope.resolve(A)


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("space:com.example.group", True),
        ("space:com.example.group?action=create", True),
        ("space:com.example.group?action=read", False),
        ("space:com.example.group?collection=*", False),
        (f"space:com.example.group?collection={NOTE}", False),
        ("space:*", False),
    ],
)
def test_a_type_is_asked_for_its_collections_only_if_it_matters(text: str, needs: bool) -> None:
    assert SpaceScope.parse(text).needs_declaration is needs


def test_a_write_without_its_collection_takes_all_of_them() -> None:
    scope = SpaceScope(SPACE.type, A, collections=frozenset((NOTE,)))
    assert scope.allows(SPACE, "create", NOTE)
    assert not scope.allows(SPACE, "create")
    assert SpaceScope(SPACE.type, A, collections=frozenset((ANY,))).allows(SPACE, "create")


@pytest.mark.parametrize(
    ("scope", "space_type", "authority", "covered"),
    [
        ("space:com.example.group?authority=*", "com.example.group", None, True),
        ("space:com.example.group?authority=*", None, None, False),
        ("space:*?authority=*", None, None, True),
        (f"space:*?authority={A}", None, A, True),
        (f"space:*?authority={A}", None, B, False),
        (f"space:*?authority={A}", None, None, False),
        (f"space:*?authority={A}&skey=k", None, A, False),
        ("space:*", None, None, False),
        ("space:*", None, "self", False),
    ],
)
def test_what_is_not_filtered_takes_a_wildcard(
    scope: str, space_type: str | None, authority: str | None, covered: bool
) -> None:
    assert SpaceScope.parse(scope).covers(space_type, authority) is covered


@pytest.mark.parametrize("declared", [[ANY], [NOTE, ANY], ["nope"]])
def test_a_declaration_does_not_widen_a_scope_to_everything(declared: list[str]) -> None:
    with pytest.raises(InvalidInput, match="collection"):
        SpaceScope(SPACE.type, A).with_default_collections(declared)


def test_a_value_is_decoded_once() -> None:
    """The port of a did:web has a percent sign of its own."""
    did = "did:web:kiln.example%3A8443"
    scope = SpaceScope.parse("space:com.example.group?authority=did:web:kiln.example%253A8443")
    assert scope.authority == did
    assert str(scope) == "space:com.example.group?authority=did:web:kiln.example%253A8443"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        ":",
        "space",
        "space:com.example.group?type=com.example.group",
        "space:com.example.group?skey=k&skey=k",
        "space:com.example.group?skey=",
        "space:com.example.group?skey",
        "space:com.example.group?=k",
        "space:com.example.group?action=",
        "space:com.example.group?collection=com.example.*",
        "space:com.example.group?authority=did:web:b%C3%BC.example",
        "space:com.example.group?authority=did:web:bü.example",
        "space:com.example.group?skey=a%00",
        "space:com.example.group\n",
        "space:com.example.group#x",
        "space:com.example.group?x=\ud800",
        "space:com.example.group?" + "action=read&" * 10_000,
        "include:com.example.set",
    ],
    ids=range(19),
)
def test_what_is_unknown_makes_a_scope_invalid(text: str) -> None:
    with pytest.raises(InvalidInput):
        SpaceScope.parse(text)


names = st.sampled_from(["com.example.group", NOTE, "com.example.other"])
scopes = st.builds(
    SpaceScope,
    names | st.just(ANY),
    st.sampled_from(["self", ANY, A, B, "did:web:kiln.example%3A8443"]),
    st.sampled_from([ANY, "k", "self", "~:._-"]),
    st.frozensets(names | st.just(ANY)),
    st.frozensets(st.sampled_from(ACTIONS), min_size=1),
    st.frozensets(st.sampled_from(MANAGEMENT)),
)


@given(scopes)
def test_a_scope_reads_back(scope: SpaceScope) -> None:
    assert SpaceScope.parse(str(scope)) == scope


@given(st.text() | st.text(alphabet="spaceinlud:?=&%2*.+com").map("space:com.example.x?{}".format))
def test_any_text_is_a_scope_or_refused(text: str) -> None:
    for parse in (SpaceScope.parse, Include.parse):
        try:
            parse(text)
        except InvalidInput:
            continue
    Grant.parse(text)


# Grants


def test_a_grant_is_all_its_scopes_for_spaces() -> None:
    grant = Grant.parse(
        f"atproto repo:* space:nonsense transition:generic space:com.example.group?authority={A}"
        f"&action=read space:com.example.group?authority={A}&action=create&collection={NOTE}"
        f"&manage=update"
    )
    assert len(grant.scopes) == 2
    grant.require(SPACE, "read")
    grant.require(SPACE, "create", NOTE)
    grant.require_management(SPACE, "update")
    for refuse in (
        lambda: grant.require(SPACE, "create", "com.example.other"),
        lambda: grant.require(SPACE, "delete", NOTE),
        lambda: grant.require(SpaceRef(B, SPACE.type, SPACE.skey), "read"),
        lambda: grant.require_management(SPACE, "delete"),
    ):
        with pytest.raises(Refused) as refused:
            refuse()
        assert refused.value.code == "InsufficientScope"


@pytest.mark.parametrize("text", ["", "space:*?authority=*", "atproto:x space:*?authority=*"])
def test_nothing_is_granted_without_the_base_scope(text: str) -> None:
    with pytest.raises(Refused):
        Grant.parse(text).require(SPACE, "read")
    Grant.parse(f"{text} atproto space:*?authority=*").require(SPACE, "read")


def test_a_grant_has_a_length() -> None:
    with pytest.raises(InvalidInput, match="longer"):
        Grant.parse("atproto " * 10_000)


# Permission sets


def permission(**entry: Any) -> dict[str, Any]:
    full = {"type": "permission", "resource": "space", "spaceType": "com.example.group"} | entry
    return {name: value for name, value in full.items() if value is not ...}


def lexicon(*permissions: Any) -> dict[str, Any]:
    main = {"type": "permission-set", "permissions": list(permissions)}
    return {"lexicon": 1, "id": "com.example.set", "defs": {"main": main}}


@pytest.mark.parametrize(
    ("text", "aud"),
    [
        ("include:com.example.set", None),
        ("include?nsid=com.example.set", None),
        ("include:com.example.set?aud=did:web:app.example%23svc", "did:web:app.example#svc"),
    ],
)
def test_a_set_is_asked_for_by_its_name(text: str, aud: str | None) -> None:
    assert Include.parse(text) == Include("com.example.set", aud)


@pytest.mark.parametrize(
    "text",
    [
        "include",
        "include:",
        "include:set",
        "include:com.example.*",
        "include:com.example.set?nsid=com.example.set",
        "include:com.example.set?aud=did:web:app.example",
        "include:com.example.set?aud=did:web:app.example%23",
        "include:com.example.set?aud=app.example%23svc",
        "include:com.example.set?aud=",
        "include:com.example.set?x=1",
        "space:com.example.set",
    ],
)
def test_what_asks_for_no_set_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Include.parse(text)


def test_a_set_is_its_permissions() -> None:
    document = lexicon(
        permission(),
        permission(
            authority=ANY,
            skey="k",
            collection=[NOTE, "org.other.note"],
            action=["read_self", "create"],
            manage=["update"],
        ),
    )
    assert [str(scope) for scope in Include("com.example.set").spaces(document)] == [
        "space:com.example.group",
        "space:com.example.group?authority=*&skey=k&collection=com.example.note"
        "&collection=org.other.note&action=read_self&action=create&manage=update",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        permission(type="x"),
        permission(resource="repo"),
        permission(spaceType=...),
        permission(spaceType=ANY),
        permission(spaceType="com.example"),
        permission(spaceType="com.examples.group"),
        permission(spaceType="org.other.group"),
        permission(spaceType=["com.example.group"]),
        permission(authority=None),
        permission(authority="kiln.example"),
        permission(collection=NOTE),
        permission(collection=[5]),
        permission(collection=[{}]),
        permission(collection=["nope"]),
        permission(action=[]),
        permission(action=["write"]),
        permission(manage=["read"]),
        permission(type="permission", other=["x"]),
    ],
    ids=str,
)
def test_a_malformed_permission_permits_nothing(entry: Any) -> None:
    include = Include("com.example.set")
    assert [str(scope) for scope in include.spaces(lexicon(entry, permission()))] == [
        "space:com.example.group"
    ]


@given(st.recursive(st.none() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x)))
def test_any_json_is_a_set(value: Any) -> None:
    for document in (value, {"defs": value}, {"defs": {"main": value}}, lexicon(value)):
        assert Include("com.example.set").spaces(document) == []
    defs = {"main": {"type": "permission-set", "permissions": value}}
    assert Include("com.example.set").spaces({"defs": defs}) == []
