"""Keys: did:key in and out, signatures that have one form only, secrets that stay put."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from hashlib import sha256

import base58
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from lettaspace.atproto.keys import Curve, SigningKey, VerifyingKey
from lettaspace.errors import InvalidInput

ORDERS = {
    "secp256k1": 2**256 - 432420386565659656852420866394968145599,
    "p256": 2**256 - 2**224 + 2**192 - 89188191075325690597107910205041859247,
}
CURVES = list(ORDERS)
DATA = b"oh my, \x00 what is this"


@pytest.mark.parametrize(
    ("curve", "secret", "did"),
    [  # W3C did:key test vectors, then keys of the protocol's reference
        (
            "secp256k1",
            "9085d2bef69286a6cbb51623c8fa258629945cd55ca705cc4e66700396894e0c",
            "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        ),
        (
            "secp256k1",
            "f0f4df55a2b3ff13051ea814a8f24ad00f2e469af73c363ac7e9fb999a9072ed",
            "did:key:zQ3shtxV1FrJfhqE1dvxYRcCknWNjHc3c5X1y3ZSoPDi2aur2",
        ),
        (
            "p256",
            base58.b58decode("9p4VRzdmhsnq869vQjVCTrRry7u4TtfRxhvBFJTGU2Cp").hex(),
            "did:key:zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb",
        ),
        (
            "p256",
            "17f427c00466fcde5d06614a792e7f2ec4c178c4e8d48087240aab09838355bb",
            "did:key:zDnaem9ZYXQjE1YEjETPbo1BAVvgVLVWyA3Z6yBTtKZJFTbZe",
        ),
        (
            "secp256k1",
            "71fd28267e8cb8634602e4585fc0079a8bf7ed13e89c1a139de4844ebc1c7c41",
            "did:key:zQ3shnL3SdWCHd92U4hQHTY7ATLN5xH9GfJjMSxFtxLJ9VjVU",
        ),
    ],
)
def test_known_keys(curve, secret, did):
    key = SigningKey.from_bytes(curve, bytes.fromhex(secret))
    assert key.did == did
    assert key.curve == curve
    assert key.to_bytes().hex() == secret
    assert VerifyingKey.from_did(did) == key.verifying_key
    assert VerifyingKey.from_did(did).curve == curve


@pytest.mark.parametrize(
    ("curve", "secret", "text", "signature"),
    [  # RFC 6979 A.2.5 for P-256; widely published ones for secp256k1, all with low s
        (
            "p256",
            "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
            b"test",
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083",
        ),
        (
            "secp256k1",
            "0000000000000000000000000000000000000000000000000000000000000001",
            b"Satoshi Nakamoto",
            "934b1ea10a4b3c1757e2b0c017d0b6143ce3c9a7e6a4a49860d7a6ab210ee3d8"
            "2442ce9d2b916064108014783e923ec36b49743e2ffa1c4496f01a512aafd9e5",
        ),
    ],
)
def test_known_signatures(curve, secret, text, signature):
    key = SigningKey.from_bytes(curve, bytes.fromhex(secret))
    assert key.sign(text).hex() == signature
    assert key.verifying_key.verify(bytes.fromhex(signature), text)


@pytest.mark.parametrize("curve", CURVES)
def test_generated_keys_round_trip(curve):
    key = SigningKey.generate(curve)
    again = SigningKey.from_bytes(curve, key.to_bytes())
    assert len(key.to_bytes()) == 32
    assert again.did == key.did
    assert again.sign(DATA) == key.sign(DATA)
    verifier = VerifyingKey.from_did(key.did)
    assert verifier.did == key.did
    assert verifier.verify(key.sign(DATA), DATA)
    assert VerifyingKey.from_multikey(verifier.multikey) == verifier
    assert SigningKey.generate(curve).did != key.did


def test_the_default_curve():
    assert SigningKey.generate().curve == "secp256k1"
    assert SigningKey.generate().did.startswith("did:key:zQ3s")
    assert SigningKey.generate("p256").did.startswith("did:key:zDn")


@settings(max_examples=60)
@given(
    st.sampled_from(CURVES), st.integers(1, 2**255), st.binary(max_size=80), st.binary(max_size=9)
)
def test_signatures_are_compact_low_and_repeatable(curve, secret, data, other):
    key = SigningKey.from_bytes(curve, secret.to_bytes(32, "big"))
    sig = key.sign(data)
    assert len(sig) == 64
    assert int.from_bytes(sig[32:], "big") <= ORDERS[curve] // 2
    assert key.sign(data) == sig
    assert key.verifying_key.verify(sig, data)
    assert key.verifying_key.verify(sig, other) is (other == data)
    # The standard library's own verifier agrees.
    key._key.public_key().verify(
        encode_dss_signature(int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")),
        data,
        ec.ECDSA(SHA256()),
    )


@pytest.mark.parametrize("curve", CURVES)
def test_only_one_form_of_a_signature_is_accepted(curve):
    key = SigningKey.generate(curve)
    verify = key.verifying_key.verify
    order = ORDERS[curve]
    sig = key.sign(DATA)
    r, s = int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")

    def compact(r: int, s: int) -> bytes:
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    assert verify(compact(r, s), DATA)
    high = compact(r, order - s)
    key._key.public_key().verify(encode_dss_signature(r, order - s), DATA, ec.ECDSA(SHA256()))
    assert not verify(high, DATA)  # valid mathematics, refused form
    assert not verify(encode_dss_signature(r, s), DATA)
    assert not verify(sig[:-1], DATA)
    assert not verify(sig + b"\x00", DATA)
    assert not verify(b"", DATA)
    for bad_r, bad_s in [(0, s), (r, 0), (0, 0), (order, s), (r, order), (2**256 - 1, s), (s, r)]:
        assert not verify(compact(bad_r, bad_s), DATA)
    if r + order < 2**256:
        assert not verify(compact(r + order, s), DATA)
    assert not verify(sig, DATA + b"x")
    assert not verify(sig, sha256(DATA).digest())
    assert not SigningKey.generate(curve).verifying_key.verify(sig, DATA)


def test_a_signature_of_one_curve_is_none_of_the_other():
    secret = bytes(31) + b"\x07"
    one, other = (SigningKey.from_bytes(curve, secret) for curve in CURVES)
    assert not other.verifying_key.verify(one.sign(DATA), DATA)
    assert one.did != other.did
    assert one.verifying_key != other.verifying_key


@pytest.mark.parametrize("curve", CURVES)
def test_secrets_out_of_range(curve):
    order = ORDERS[curve]
    largest = SigningKey.from_bytes(curve, (order - 1).to_bytes(32, "big"))
    assert largest.to_bytes() == (order - 1).to_bytes(32, "big")
    for data in (
        bytes(32),
        order.to_bytes(32, "big"),
        b"\xff" * 32,
        b"",
        bytes(30) + b"\x01",
        bytes(32) + b"\x01",
    ):
        with pytest.raises(InvalidInput, match=curve):
            SigningKey.from_bytes(curve, data)


def test_unknown_curves():
    for curve in ("ed25519", "P256", ""):
        with pytest.raises(InvalidInput, match="neither"):
            SigningKey.generate(curve)
        with pytest.raises(InvalidInput, match="neither"):
            SigningKey.from_bytes(curve, bytes(31) + b"\x01")
    with pytest.raises(InvalidInput, match="neither"):
        SigningKey(ec.generate_private_key(ec.SECP384R1()))


POINT = base58.b58decode(SigningKey.from_bytes("p256", bytes(31) + b"\x09").did[9:])[2:]


def did(data: bytes) -> str:
    return "did:key:z" + base58.b58encode(data).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:key:",
        "did:key:z",
        "did:web:example.com",
        "zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169",
        did(b"\x80\x24" + POINT) + "\n",
        did(b"\x80\x24" + POINT) + " ",
        did(b"\x80\x24" + POINT)[:-1],
        did(b"\x80\x24" + POINT) + "0",
        did(b"\x80\x24" + POINT).replace("did:key:z", "did:key:m"),
        did(b"\x80\x24" + POINT).replace("did:key:z", "did:key:z1"),
        did(b"\x80\x24" + POINT + b"\x00"),
        did(b"\x80\x24" + POINT[:-1]),
        did(b"\xe7\x01" + POINT[:32]),
        did(b"\xed\x01" + POINT),
        did(b"\xe7" + POINT),
        did(b"\x80\x24\x04" + POINT[1:]),
        did(b"\x80\x24\x00" + POINT[1:]),
        did(b"\x80\x24\x02" + b"\xff" * 32),
        did(b"\xe7\x01\x02" + bytes(31) + b"\x05"),  # no such point
    ],
)
def test_malformed_did_keys(text):
    with pytest.raises(InvalidInput):
        VerifyingKey.from_did(text)


def test_uncompressed_points_are_refused():
    key = ec.derive_private_key(9, ec.SECP256R1()).public_key().public_numbers()
    point = b"\x04" + key.x.to_bytes(32, "big") + key.y.to_bytes(32, "big")
    with pytest.raises(InvalidInput):
        VerifyingKey.from_did(did(b"\x80\x24" + point))


@pytest.mark.parametrize("curve", CURVES)
def test_secrets_do_not_show(curve):
    key = SigningKey.from_bytes(curve, sha256(b"secret").digest())
    secret = key.to_bytes()
    shown = f"{key!r} {key} {key.verifying_key!r}"
    assert key.did in shown
    for form in (secret.hex(), repr(secret), str(int.from_bytes(secret, "big"))):
        assert form not in shown
    assert not hasattr(key, "__dict__")
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(key)


def test_verifying_keys_are_values():
    key = SigningKey.generate()
    assert len({key.verifying_key, VerifyingKey.from_did(key.did)}) == 1
    assert key.verifying_key != key.did


def test_signing_uses_no_randomness_but_the_key():
    key = SigningKey.from_bytes("p256", bytes(31) + b"\x2a")
    assert len({key.sign(DATA) for _ in range(5)}) == 1
    r, _ = decode_dss_signature(key._key.sign(DATA, ec.ECDSA(SHA256(), deterministic_signing=True)))
    assert key.sign(DATA)[:32] == r.to_bytes(32, "big")


def test_other_modules_do_not_load_cryptography():
    code = (
        "import sys\n"
        "from lettaspace.atproto import cbor, cid, data, lexicon, syntax, tid, uri\n"
        "heavy = {'cryptography', 'numpy', 'base58', 'sqlalchemy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("curve", CURVES)
def test_a_key_is_its_point(curve: Curve) -> None:
    key = SigningKey.generate(curve).verifying_key
    assert VerifyingKey.from_point(curve, *key.point) == key
    x, y = key.point
    for other in ((y, x), (x, x), (x, bytes(32)), (x[1:], y), (x, y + b"\0"), (b"\xff" * 32, y)):
        with pytest.raises(InvalidInput):
            VerifyingKey.from_point(curve, *other)
    with pytest.raises(InvalidInput):
        VerifyingKey.from_point("ed25519", x, y)  # type: ignore[arg-type]


@pytest.mark.parametrize("curve", CURVES)
def test_a_high_s_is_taken_only_where_it_is_asked_for(curve: Curve) -> None:
    key = SigningKey.generate(curve)
    sig = key.sign(DATA)
    high = sig[:32] + (ORDERS[curve] - int.from_bytes(sig[32:], "big")).to_bytes(32, "big")
    assert not key.verifying_key.verify(high, DATA)
    assert key.verifying_key.verify(high, DATA, high_s=True)
    assert key.verifying_key.verify(sig, DATA, high_s=True)
    assert not key.verifying_key.verify(high, DATA + b"x", high_s=True)
    for wrong in (bytes(64), b"\xff" * 64, sig[:63], sig[:32] + bytes(32)):
        assert not key.verifying_key.verify(wrong, DATA, high_s=True)


@pytest.mark.parametrize("curve", CURVES)
def test_what_is_remembered_of_a_signature_is_true_of_nothing_else(curve: Curve) -> None:
    key, other = SigningKey.generate(curve), SigningKey.generate(curve)
    sig = key.sign(DATA)
    high = sig[:32] + (ORDERS[curve] - int.from_bytes(sig[32:], "big")).to_bytes(32, "big")
    for _ in range(2):
        assert key.verifying_key.verify_again(sig, DATA)
        assert not key.verifying_key.verify_again(sig, DATA + b"x")
        assert not other.verifying_key.verify_again(sig, DATA)
        assert not key.verifying_key.verify_again(other.sign(DATA), DATA)
        assert not key.verifying_key.verify_again(high, DATA)
        assert key.verifying_key.verify_again(high, DATA, high_s=True)
