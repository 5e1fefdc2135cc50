"""Every target takes all that is kept for it, and things like it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import __main__
from tests.fuzz.keeping import distinct
from tests.fuzz.mutating import MAX_LENGTH, mutations, smaller
from tests.fuzz.registry import CORPUS, TARGETS, corpus, load

MUTATIONS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_are_kept(name: str) -> None:
    fuzz, _ = load(name)
    kept = corpus(name)
    assert kept
    for data in kept:
        fuzz(data)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_are_like_them(name: str) -> None:
    fuzz, words = load(name)
    for data in islice(mutations(corpus(name), words, seed=7), MUTATIONS):
        fuzz(data)


def test_there_is_a_corpus_for_each_target_and_none_is_large() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    sizes = [path.stat().st_size for path in CORPUS.glob("*/*")]
    assert sum(sizes) < 1_000_000
    assert max(sizes) <= MAX_LENGTH


def test_changes_are_the_same_for_the_same_seed() -> None:
    first, again, other = (
        list(islice(mutations([b"some", b"thing"], [b"word"], seed), 200)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert any(b"word" in data for data in first)


def test_an_input_that_fails_is_made_smaller() -> None:
    assert (
        smaller(b"some bytes around {what} matters", lambda data: b"{" in data and b"}" in data)
        == b"{}"
    )


def test_a_failing_input_is_reported_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fuzz(data: bytes) -> None:
        assert b"{" not in data

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(__main__, "load", lambda _: (fuzz, ()))
    monkeypatch.setattr(__main__, "corpus", lambda _: [b"some", b"some {braces}"])
    assert __main__.without("cbor", seconds=0, seed=1) == 1
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == b"{"
    assert f"cbor: failed after 2 runs; the input is in {kept.name}" in capsys.readouterr().out


def test_without_a_fault_the_whole_corpus_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.without("cid", seconds=0, seed=1) == 0
    assert f"cid: {len(corpus('cid'))} runs" in capsys.readouterr().out


def test_only_inputs_that_reach_something_new_are_kept() -> None:
    fuzz, _ = load("cbor")
    assert distinct(fuzz, [b"\xa1aa\x01", b"\x01", b"\x02", b"\xff"]) == [
        b"\x01",
        b"\xff",
        b"\xa1aa\x01",
    ]
    assert distinct(fuzz, [b"\x01"], always=[b"\x02"]) == []
