"""TIDs: encoding, deriving, and a clock that is frozen, jumps and has bad neighbours."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.atproto import tid
from lettaspace.atproto.syntax import is_tid
from lettaspace.errors import InvalidInput

MICROS = st.integers(0, tid.MAX_MICROS)
CLOCK_IDS = st.integers(0, 1023)
NOW = 1_767_225_600_000_000  # 2026-01-01, microseconds
SECOND = 1_000_000
HOUR = 3600 * SECOND


class Clock:
    """A clock that stands still until it is moved; microseconds, read in nanoseconds."""

    def __init__(self, micros: int = NOW) -> None:
        self.micros = micros

    def __call__(self) -> int:
        return self.micros * 1000


@given(MICROS, CLOCK_IDS)
def test_round_trip(micros, clock_id):
    text = tid.encode(micros, clock_id)
    assert is_tid(text)
    assert tid.decode(text) == (micros, clock_id)


@given(MICROS, CLOCK_IDS, MICROS, CLOCK_IDS)
def test_texts_sort_as_times_do(micros, clock_id, other, other_id):
    ordered = (micros, clock_id) < (other, other_id)
    assert (tid.encode(micros, clock_id) < tid.encode(other, other_id)) is ordered


@pytest.mark.parametrize(
    ("text", "micros", "clock_id"),
    [
        ("2222222222222", 0, 0),
        ("2222222222223", 0, 1),
        ("2222222222322", 1, 0),
        ("bzzzzzzzzzzzz", tid.MAX_MICROS, 1023),
        ("3jzfcijpj2z2a", 1_688_137_381_887_007, 6),
    ],
)
def test_known_values(text, micros, clock_id):
    assert tid.encode(micros, clock_id) == text
    assert tid.decode(text) == (micros, clock_id)


def test_a_tid_with_its_top_bit_set_is_beyond_all_times():
    assert tid.decode("c222222222222") == (tid.MAX_MICROS + 1, 0)
    assert tid.decode("jzzzzzzzzzzzz") == (2 * tid.MAX_MICROS + 1, 1023)


@pytest.mark.parametrize(
    ("micros", "clock_id"), [(-1, 0), (tid.MAX_MICROS + 1, 0), (0, -1), (0, 1024)]
)
def test_encode_refuses_what_does_not_fit(micros, clock_id):
    with pytest.raises(InvalidInput):
        tid.encode(micros, clock_id)


@pytest.mark.parametrize("text", ["", "kjzfcijpj2z2a", "3jzfcijpj2z2", "3jzfcijpj2z2a\n"])
def test_decode_refuses_what_is_not_a_tid(text):
    with pytest.raises(InvalidInput):
        tid.decode(text)


@given(st.integers(0, tid.MAX_MICROS // 1000 - 1), st.binary(min_size=6, max_size=32))
def test_o30_derived_tids_keep_the_millisecond_and_repeat(millis, digest):
    text = tid.derive(millis, digest)
    assert text == tid.derive(millis, digest)
    assert tid.decode(text)[0] // 1000 == millis


def test_o28_derived_tids_follow_the_time_given():
    digests = [bytes([n] * 6) for n in (200, 3, 77)]
    derived = [tid.derive(1_000 + n, d) for n, d in enumerate(digests)]
    assert derived == sorted(derived)
    assert len({tid.derive(1_000, d) for d in digests}) == 3


def test_derived_tids_are_as_documented():
    # 0x000003e7 is 999; of 0xfc01 the low ten bits are 1; further bytes play no part.
    assert tid.decode(tid.derive(5, bytes.fromhex("000003e7fc01"))) == (5_999, 1)
    assert tid.decode(tid.derive(5, bytes.fromhex("000003e803ff") + b"x")) == (5_000, 1023)


@pytest.mark.parametrize("millis", [-1, tid.MAX_MICROS // 1000 + 1])
def test_derive_refuses_times_without_a_tid(millis):
    with pytest.raises(InvalidInput):
        tid.derive(millis, bytes(32))


def test_derive_refuses_a_short_digest():
    with pytest.raises(InvalidInput):
        tid.derive(0, bytes(5))


def test_o29_frozen_clock_then_advance_then_step_back_then_new_process():
    clock = Clock()
    first = tid.TidClock(clock, clock_id=7)
    minted = [first.mint() for _ in range(5000)]
    assert tid.decode(minted[0]) == (NOW, 7)

    clock.micros += SECOND
    minted.append(first.mint())
    assert abs(tid.decode(minted[-1])[0] - clock.micros) < SECOND

    clock.micros -= HOUR
    minted.append(first.mint())
    assert minted == sorted(set(minted))
    assert len(minted) == 5002
    assert all(is_tid(text) for text in minted)

    # The new process has the same clock, an hour behind, and a lower clock identifier.
    second = tid.TidClock(clock, clock_id=0)
    assert second.mint(floor=minted[-1]) > minted[-1]


def test_o29_drift_goes_away():
    clock = Clock()
    tids = tid.TidClock(clock)
    for _ in range(2000):
        tids.mint()
    clock.micros += SECOND
    assert tid.decode(tids.mint())[0] == clock.micros


def test_o29_across_real_processes():
    code = (
        "import sys; from lettaspace.atproto.tid import TidClock; c = TidClock();"
        "f = sys.argv[1] if len(sys.argv) > 1 else None;"
        "print('\\n'.join(c.mint(f) for _ in range(500)))"
    )
    minted: list[str] = []
    for _ in range(2):
        args = [sys.executable, "-c", code, *minted[-1:]]
        run = subprocess.run(args, capture_output=True, text=True, check=True)
        minted += run.stdout.split()
    assert len(minted) == 1000
    assert minted == sorted(set(minted))


def test_a_floor_is_exceeded_even_when_it_only_differs_in_the_clock_identifier():
    clock = Clock()
    floor = tid.encode(NOW, 1023)
    assert tid.decode(tid.TidClock(clock, clock_id=0).mint(floor)) == (NOW + 1, 0)


def test_a_floor_below_changes_nothing():
    clock = Clock()
    assert tid.decode(tid.TidClock(clock, clock_id=3).mint(tid.encode(NOW - 1, 9))) == (NOW, 3)


def test_a_far_future_floor_does_not_drag_the_clock():
    clock = Clock()
    tids = tid.TidClock(clock, clock_id=1)
    wild = tid.encode(NOW + tid.DAY + 1, 0)
    assert tid.decode(tids.mint(wild)) == (NOW, 1)
    assert tid.decode(tids.mint(wild)) == (NOW + 1, 1)
    assert tid.decode(tids.mint("jzzzzzzzzzzzz")) == (NOW + 2, 1)
    believed = tid.encode(NOW + tid.DAY, 0)
    assert tid.decode(tids.mint(believed)) == (NOW + tid.DAY + 1, 1)


def test_how_far_ahead_is_believed_can_be_chosen():
    clock = Clock()
    tids = tid.TidClock(clock, clock_id=1, max_ahead=300 * SECOND)
    assert tid.decode(tids.mint(tid.encode(NOW + 300 * SECOND + 1, 0)))[0] == NOW
    assert tid.decode(tids.mint(tid.encode(NOW + 300 * SECOND, 0)))[0] == NOW + 300 * SECOND + 1


def test_a_bad_floor_is_refused_and_uses_nothing_up():
    tids = tid.TidClock(Clock(), clock_id=1)
    with pytest.raises(InvalidInput):
        tids.mint("nonsense")
    assert tid.decode(tids.mint()) == (NOW, 1)


def test_a_clock_out_of_range_is_refused():
    clock = Clock(tid.MAX_MICROS + 1)
    tids = tid.TidClock(clock)
    with pytest.raises(InvalidInput):
        tids.mint()
    clock.micros = NOW
    assert tid.decode(tids.mint())[0] == NOW


def test_a_day_is_a_day():
    assert tid.DAY == 86_400 * SECOND
    assert tid.MAX_MICROS == 2**53 - 1


@pytest.mark.parametrize("clock_id", [0, 1023])
def test_clock_identifiers_at_their_limits(clock_id):
    assert tid.decode(tid.TidClock(Clock(), clock_id=clock_id).mint()) == (NOW, clock_id)


@pytest.mark.parametrize("clock_id", [-1, 1024])
def test_clock_identifier_out_of_range(clock_id):
    with pytest.raises(InvalidInput):
        tid.TidClock(clock_id=clock_id)


def test_one_clock_identifier_per_clock():
    tids = tid.TidClock()
    assert len({tid.decode(tids.mint())[1] for _ in range(20)}) == 1


def test_threads_never_mint_the_same():
    tids = tid.TidClock(Clock(), clock_id=5)
    minted: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        for _ in range(500):
            mine.append(tids.mint())

    threads = [threading.Thread(target=work, args=(mine,)) for mine in minted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in minted)
    assert len({text for mine in minted for text in mine}) == 4000
