"""HTTP message signatures, against vectors of the reference, and against changed requests."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto.httpsig import (
    MAX_SIGNATURE,
    sign_exchange,
    sign_use,
    single,
    verify_exchange,
    verify_use,
)
from lettaspace.atproto.keys import SigningKey, VerifyingKey
from lettaspace.errors import InvalidInput, Refused

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors/http_signature.json").read_text())
VALID = {case["name"]: case for case in VECTORS["valid"]}
SECRET = VECTORS["keys"]["private_key_1"]
KEY = SigningKey.from_bytes("p256", bytes.fromhex(SECRET["private_scalar_hex"]))
# The same in each process: it stands in a test's name.
OTHER = SigningKey.from_bytes("p256", bytes([7] * 32))

BEARER = "Bearer delegation"
CREDENTIAL = "Atproto-Space credential"
AUDIENCE = "did:web:ada.example"
EXCHANGE = [("Authorization", BEARER), *sign_exchange(KEY, BEARER)]
USE = [("Authorization", CREDENTIAL), *sign_use(KEY, CREDENTIAL, AUDIENCE)]


def fields(headers: dict[str, Any]) -> list[tuple[str, str]]:
    """Header fields as they are received, from a table with values or lists of them."""
    found = []
    for name, value in headers.items():
        values = value if isinstance(value, list) else [value]
        found += [(name, text) for text in values if text is not None]
    return found


def verify(case: dict[str, Any], headers: list[tuple[str, str]], kind: str) -> None:
    key = VerifyingKey.from_did(case["key_id"])
    if kind == "credential":
        assert verify_use(headers, key) == case["headers"]["atproto-space-audience"]
    else:
        assert verify_exchange(headers) == key


def test_every_vector_is_run() -> None:
    assert (len(VALID), len(VECTORS["invalid"])) == (9, 47)
    assert KEY.did == SECRET["did_key"]


@pytest.mark.parametrize("case", VALID.values(), ids=VALID)
def test_valid_vector(case: dict[str, Any]) -> None:
    headers = case["headers"]
    verify(case, fields(headers), case["kind"])
    if not case["name"].endswith("/minimal"):
        return
    # What we sign for the same key is the same text.
    value = headers["authorization"]
    if case["kind"] == "credential":
        made = sign_use(KEY, value, headers["atproto-space-audience"])
    else:
        made = sign_exchange(KEY, value)
    assert {name.lower(): text for name, text in made} | {"authorization": value} == headers


@pytest.mark.parametrize("case", VECTORS["invalid"], ids=lambda case: case["name"])
def test_invalid_vector(case: dict[str, Any]) -> None:
    base = VALID[case["base_case"]]
    headers = fields(base["headers"] | case["override"])
    with pytest.raises(Refused) as refused:
        verify(base, headers, case.get("verify_as", base["kind"]))
    assert refused.value.code == "BadSpaceSignature"


def test_what_is_signed_verifies() -> None:
    assert verify_exchange(EXCHANGE) == KEY.verifying_key
    assert verify_use(USE, KEY.verifying_key) == AUDIENCE
    for key in (OTHER.verifying_key, SigningKey.generate().verifying_key):
        with pytest.raises(Refused):
            verify_use(USE, key)


def changed(name: str, value: str | None) -> list[tuple[str, str]]:
    """The fields of a use, one replaced or left out."""
    rest = [field for field in USE if field[0].lower() != name]
    return rest if value is None else [*rest, (name, value)]


def member(name: str) -> str:
    return next(value for field, value in USE if field.lower() == name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("signature", f"other=:YWJj:, {member('signature')}"),
        ("signature", f"{member('signature')} ,\tother"),
        ("signature", member("signature").replace("==:", ":")),
        ("signature-input", 'atproto-space=( "authorization"  "atproto-space-audience" ) '),
        ("signature-input", f'{member("signature-input")}, other=();x=@5;y=%"f%c3%bc"'),
        ("authorization", f" \t{CREDENTIAL}\t"),
    ],
)
def test_loose_spelling_is_the_same_message(name: str, value: str) -> None:
    assert verify_use(changed(name, value), KEY.verifying_key) == AUDIENCE


def test_signature_fields_may_come_in_several_lines() -> None:
    headers = [("Signature", "other=:YWJj:"), ("SIGNATURE-INPUT", "other=()"), *USE]
    assert verify_use(headers, KEY.verifying_key) == AUDIENCE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "Bearer credential"),
        ("authorization", "atproto-space credential"),
        ("authorization", "Atproto-Space credential, Atproto-Space credential"),
        ("authorization", "Atproto-Space cr\u00e9dential"),
        ("authorization", "Atproto-Space credential\nx: y"),
        ("authorization", ""),
        ("atproto-space-audience", f"{AUDIENCE}#atproto_space_host"),
        ("atproto-space-audience", "\ud800"),
        ("signature-input", f"{member('signature-input')}, {member('signature-input')}"),
        ("signature-input", f"{member('signature-input')};tag=a"),
        ("signature-input", f"{member('signature-input')};alg=ecdsa-p256-sha256"),
        ("signature-input", f"{member('signature-input')};keyid={KEY.did}"),
        ("signature-input", f'{member("signature-input")};keyid="{KEY.did}"'),
        ("signature-input", f"{member('signature-input')};a=1;a=1"),
        ("signature-input", f"{member('signature-input')},"),
        ("signature-input", f",{member('signature-input')}"),
        ("signature-input", member("signature-input").upper()),
        ("signature-input", member("signature-input") + "\u00fc"),
        ("signature-input", "\ud800"),
        ("signature-input", 'atproto-space=("authorization" "atproto-space-audience";x)'),
        ("signature-input", f"{member('signature-input')}, o=" + "x" * MAX_SIGNATURE),
        ("signature", f"{member('signature')}, {member('signature')}"),
        ("signature", f"{member('signature')};x"),
        ("signature", "atproto-space=::"),
        ("signature", f"atproto-space=:{b64encode(bytes(64)).decode()}:"),
        ("signature", f"atproto-space=:{b64encode(bytes([255] * 64)).decode()}:"),
    ],
)
def test_another_message_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refused) as refused:
        verify_use(changed(name, value), KEY.verifying_key)
    assert refused.value.code == "BadSpaceSignature"


@pytest.mark.parametrize("name", [name for name, _ in USE])
def test_every_field_is_needed_and_the_covered_ones_once(name: str) -> None:
    lower = name.lower()
    with pytest.raises(Refused):
        verify_use(changed(lower, None), KEY.verifying_key)
    with pytest.raises(Refused):
        verify_use([*USE, (lower, member(lower))], KEY.verifying_key)


def signed(
    text: str, covered: tuple[str, ...] = ("authorization", "atproto-space-audience")
) -> list[tuple[str, str]]:
    """A use whose signature is good for whatever member of Signature-Input it is given."""
    values = {"authorization": CREDENTIAL, "atproto-space-audience": AUDIENCE}
    lines = [f'"{name}": {values[name]}' for name in covered]
    base = "\n".join([*lines, f'"@signature-params": {text}'])
    sig = b64encode(KEY.sign(base.encode())).decode()
    return [
        *USE[:2],
        ("Signature-Input", f"atproto-space={text}"),
        ("Signature", f"atproto-space=:{sig}:"),
    ]


BOTH = '("authorization" "atproto-space-audience")'


@pytest.mark.parametrize(
    "params",
    [
        "",
        f';keyid="{KEY.did}"',
        ';alg="ecdsa-p256-sha256"',
        ";created=1;expires=0;nonce=:YWJj:;tag=x;a=?0;b;c=1.5;d=@5",
        ';e=%"f%c3%bc"',
    ],
)
def test_parameters_are_signed_and_most_mean_nothing(params: str) -> None:
    assert verify_use(signed(BOTH + params), KEY.verifying_key) == AUDIENCE


@pytest.mark.parametrize(
    "params",
    [
        f";keyid={KEY.did}",
        f';keyid="{OTHER.did}"',
        ";keyid",
        ";keyid=1",
        ";keyid=:YWJj:",
        ";alg=ecdsa-p256-sha256",
        ';alg="ecdsa-p384-sha384"',
        ";alg",
    ],
)
def test_the_key_and_the_algorithm_are_the_credentials(params: str) -> None:
    with pytest.raises(Refused, match=r"keyid|alg"):
        verify_use(signed(BOTH + params), KEY.verifying_key)


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ('("authorization")', ("authorization",)),
        ('("atproto-space-audience")', ("atproto-space-audience",)),
        (
            '("atproto-space-audience" "authorization")',
            ("atproto-space-audience", "authorization"),
        ),
        ("(authorization atproto-space-audience)", ("authorization", "atproto-space-audience")),
        ("()", ()),
    ],
)
def test_a_good_signature_of_something_else_is_refused(text: str, covered: Any) -> None:
    with pytest.raises(Refused, match="does not cover exactly"):
        verify_use(signed(text, covered), KEY.verifying_key)


def test_an_exchange_is_for_the_key_it_names() -> None:
    """A key that is named and another that signed: neither gets a credential."""
    headers = dict(EXCHANGE)
    with pytest.raises(Refused):
        verify_exchange(
            fields(
                headers
                | {"Signature-Input": headers["Signature-Input"].replace(KEY.did, OTHER.did)}
            )
        )


def test_a_key_on_another_curve_proves_nothing() -> None:
    """Though it signed all of it."""
    key = SigningKey.generate()
    member = f'("authorization");keyid="{key.did}"'
    sig = b64encode(key.sign(f'"authorization": {BEARER}\n"@signature-params": {member}'.encode()))
    headers = [
        ("Authorization", BEARER),
        ("Signature-Input", f"atproto-space={member}"),
        ("Signature", f"atproto-space=:{sig.decode()}:"),
    ]
    with pytest.raises(Refused, match="not on P-256"):
        verify_exchange(headers)


def test_messages_of_one_purpose_are_none_of_the_other() -> None:
    with pytest.raises(Refused):
        verify_exchange(USE)
    with pytest.raises(Refused):
        verify_use([*EXCHANGE, ("Atproto-Space-Audience", AUDIENCE)], KEY.verifying_key)


@pytest.mark.parametrize("value", ["", " x", "x\n", "a\r\nb: c", "\u00fc", "\x00"])
def test_what_is_no_field_is_not_signed(value: str) -> None:
    with pytest.raises(InvalidInput, match="field value"):
        sign_exchange(KEY, value)


def test_what_nobody_verifies_is_not_signed() -> None:
    for sign in (lambda k: sign_exchange(k, BEARER), lambda k: sign_use(k, CREDENTIAL, AUDIENCE)):
        with pytest.raises(InvalidInput, match="P-256"):
            sign(SigningKey.generate())
    with pytest.raises(InvalidInput, match="audience"):
        sign_use(KEY, CREDENTIAL, f"{AUDIENCE}#atproto_space_host")


@given(st.data())
def test_no_bit_can_be_changed(data: st.DataObject) -> None:
    """Of the covered values and of the signature; spaces at the ends and padding are no part."""
    name, value = data.draw(st.sampled_from(USE))
    if name == "Signature":
        sig = bytearray(b64decode(value.partition(":")[2][:-1]))
        sig[data.draw(st.integers(0, 63))] ^= 1 << data.draw(st.integers(0, 7))
        text = f"atproto-space=:{b64encode(sig).decode()}:"
    else:
        place = data.draw(st.integers(0, len(value) - 1))
        bit = 1 << data.draw(st.integers(0, 7))
        text = value[:place] + chr(ord(value[place]) ^ bit) + value[place + 1 :]
    with pytest.raises(Refused):
        verify_use(changed(name.lower(), text), KEY.verifying_key)


texts = st.text() | st.text(alphabet='atproto-space=()";:,*?@%.0123456789 \t\\')
parameters = st.text(alphabet='abk=";:,*?@%.0123456789 \t\\-', max_size=30)


@given(
    st.lists(
        st.tuples(st.sampled_from([name for name, _ in USE]), texts)
        | st.tuples(
            st.just("signature-input"), parameters.map(f"{member('signature-input')};{{}}".format)
        ),
        max_size=6,
    )
)
def test_any_fields_are_refused(headers: list[tuple[str, str]]) -> None:
    for attempt in (headers, [*headers, *USE[:2]], [*headers, *USE[:2], USE[3]]):
        with pytest.raises(Refused):
            verify_use(attempt, OTHER.verifying_key)
        with pytest.raises(Refused):
            verify_exchange(attempt)


@pytest.mark.parametrize("value", ['"' + "\\\\" * 4000, "(" * 8000, ";a" * 4000, "a," * 4000])
def test_a_long_field_is_refused(value: str) -> None:
    for text in (value, value * 1000):
        with pytest.raises(Refused):
            verify_use(changed("signature-input", text), KEY.verifying_key)


def test_a_field_is_there_once_or_not_at_all() -> None:
    assert single(USE, "authorization") == CREDENTIAL
    assert single(USE, "dpop") is None
