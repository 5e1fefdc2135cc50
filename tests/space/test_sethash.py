"""The set hash, against vectors of the reference implementation and its own laws."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.space import schema
from lettaspace.space.sethash import SetHash, element

VECTORS = json.loads((Path(__file__).parents[1] / "data/vectors/lthash.json").read_text())
GOOD = [case for case in VECTORS["cases"] if not case.get("expect_error")]
BAD = [case for case in VECTORS["cases"] if case.get("expect_error")]

EMPTY = "e5a00aa9991ac8a5ee3109844d84a55583bd20572ad3ffcd42792f3c36b183ad"


def test_every_vector_is_run():
    assert len(GOOD) == 29
    assert len(BAD) == 3


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case["name"])
def test_reference_vector(case):
    initial = case.get("initial_state_hex")
    set_hash = SetHash(bytes.fromhex(initial) if initial else None)
    after_each = case.get("digest_after_each_op") or []
    for number, op in enumerate(case["ops"]):
        for _ in range(op.get("repeat", 1)):
            getattr(set_hash, op["op"])(op["element"].encode())
        if number < len(after_each):
            assert set_hash.digest().hex() == after_each[number]
    assert set_hash.digest().hex() == case["digest"]
    assert set_hash.is_empty == case["is_empty"]
    assert set_hash.state.hex().startswith(case["state_prefix_hex"])
    assert set_hash.state.hex().endswith(case["state_suffix_hex"])
    if "state_hex" in case:
        assert set_hash.state.hex() == case["state_hex"]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_a_state_of_another_size_is_refused(case):
    with pytest.raises(ValueError, match="2048"):
        SetHash(bytes(case["initial_state_bytes"]))


def test_the_empty_set():
    assert SetHash().digest().hex() == EMPTY
    assert SetHash().is_empty
    assert SetHash().state == schema.EMPTY_SET_HASH


def test_an_element_is_collection_rkey_and_cid():
    assert element("com.example.note", "a", "bafyx") == b"com.example.note/a/bafyx"


@given(st.lists(st.binary(max_size=80), max_size=12), st.randoms())
def test_order_never_matters_and_removal_undoes(items, random):
    forward, shuffled = SetHash(), SetHash()
    for item in items:
        forward.add(item)
    random.shuffle(items)
    for item in items:
        shuffled.add(item)
    assert forward.state == shuffled.state
    resumed = SetHash(forward.state)
    for item in items:
        resumed.remove(item)
    assert resumed.is_empty


def test_a_state_is_not_shared_with_the_bytes_it_came_from():
    state = SetHash().state
    SetHash(state).add(b"x")
    assert SetHash(state).is_empty


@given(st.lists(st.binary(), max_size=20), st.lists(st.binary(), max_size=5))
def test_many_at_once_are_each_of_them(items, before):
    one_by_one, at_once = SetHash(), SetHash()
    for item in before:
        one_by_one.add(item)
        at_once.add(item)
    for item in items:
        one_by_one.add(item)
    at_once.add_all(items)
    assert at_once.state == one_by_one.state
