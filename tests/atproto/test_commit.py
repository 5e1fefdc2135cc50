"""Commits, against vectors of the reference implementation."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto import cbor
from lettaspace.atproto.cid import CID
from lettaspace.atproto.commit import IKM_BYTES, Commit, context, mac_key, sign
from lettaspace.atproto.data import to_json
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.errors import InvalidInput

VECTORS = Path(__file__).parents[1] / "data/vectors"
CONTEXTS = json.loads((VECTORS / "commit_ctx.json").read_text())["cases"]
SIGNED = json.loads((VECTORS / "signed_commits.json").read_text())
NEWEST = json.loads((VECTORS / "http_signature.json").read_text())["commits"]["items"]

SPACE = "at://did:web:kiln.example/space/com.example.group/k"
AUTHOR = "did:web:ada.example"
REV = "3kbcq3p7ad42f"
KEY = SigningKey.generate()


def test_every_vector_is_run() -> None:
    assert (len(CONTEXTS), len(SIGNED["cases"]), len(NEWEST)) == (13, 50, 3)


@pytest.mark.parametrize("case", CONTEXTS, ids=lambda case: case["name"])
def test_context_vector(case: dict[str, Any]) -> None:
    repeat = case.get("space_repeat")
    space = case["space"] if repeat is None else repeat["char"] * repeat["count"]
    ikm = bytes.fromhex(case["ikm_hex"])
    if case.get("expect_error"):
        with pytest.raises(InvalidInput, match="65536 bytes is too long"):
            context(space, case["author"], case["rev"], ikm)
        return
    signed = context(space, case["author"], case["rev"], ikm)
    if "ctx_hex" in case:
        assert signed.hex() == case["ctx_hex"]
    else:
        assert sha256(signed).hexdigest() == case["ctx_sha256"]
    assert mac_key(signed, ikm).hex() == case["hkdf_key_hex"]


@pytest.mark.parametrize("item", NEWEST, ids=lambda item: item["author"])
def test_newest_commit_vector(item: dict[str, Any]) -> None:
    """Of the protocol of October, which changed nothing here."""
    parts = {name: bytes.fromhex(item[name]) for name in ("hash", "ikm", "sig", "mac")}
    commit = Commit(item["rev"], **parts)
    assert context(item["space"], item["author"], item["rev"], commit.ikm).hex() == item["ctx"]
    assert commit.is_valid(
        item["space"], item["author"], VerifyingKey.from_did(item["signing_key"])
    )


@pytest.mark.parametrize("case", SIGNED["cases"], ids=lambda case: case["name"])
def test_commit_vector(case: dict[str, Any]) -> None:
    value = {
        name.removesuffix("_hex"): bytes.fromhex(field) if name.endswith("_hex") else field
        for name, field in case["commit"].items()
    }
    if "commit_cbor_hex" in case:
        block = bytes.fromhex(case["commit_cbor_hex"])
        assert cbor.decode(block) == value
        assert str(CID.for_cbor(block)) == case["commit_cid"]
        assert to_json(value) == case["commit_json"]
    key = VerifyingKey.from_did(case["did_key"])
    try:
        commit = Commit.from_value(value)
    except InvalidInput:
        assert case["expected"] is False
        assert value["ver"] != 1
        return
    assert commit.to_value() == value
    # The reference is told the revision; here it is the commit's own, which the caller compares.
    accepted = commit.is_valid(case["space"], case["author"], key) and commit.rev == case["rev"]
    assert accepted is case["expected"]
    if case["name"].endswith(": valid"):
        secret = SIGNED["keys"][case["key"]]
        signer = SigningKey.from_bytes(secret["curve"], bytes.fromhex(secret["private_hex"]))
        again = sign(signer, case["space"], case["author"], case["rev"], commit.hash, commit.ikm)
        assert again == commit


def test_a_fresh_one_for_every_reader() -> None:
    one, two = (sign(KEY, SPACE, AUTHOR, REV, bytes(32)) for _ in range(2))
    assert len(one.ikm) == IKM_BYTES
    assert one.ikm != two.ikm
    assert one.is_valid(SPACE, AUTHOR, KEY.verifying_key)
    assert not one.is_valid(SPACE, AUTHOR + "x", KEY.verifying_key)
    assert not one.is_valid("s" * 70000, AUTHOR, KEY.verifying_key)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ver", 2),
        ("ver", True),
        ("ver", None),
        ("rev", "now"),
        ("hash", "text"),
        ("ikm", None),
        ("sig", 1),
        ("mac", []),
    ],
)
def test_malformed(field: str, value: object) -> None:
    good = sign(KEY, SPACE, AUTHOR, REV, bytes(32)).to_value()
    assert Commit.from_value({**good, "more": 1}) == Commit.from_value(good)
    with pytest.raises(InvalidInput, match="commit: "):
        Commit.from_value({**good, field: value})
    with pytest.raises(InvalidInput, match="commit: not a map"):
        Commit.from_value([good])
