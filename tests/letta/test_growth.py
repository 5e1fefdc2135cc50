"""Importing while a conversation grows ends where importing it once at the end does."""

from __future__ import annotations

import random

import pytest

from lettaspace.letta.importer import import_directory
from tests.letta.build import Store, jsonl, session
from tests.letta.conftest import OpenSpace
from tests.letta.helpers import records
from tests.letta.test_replay import Model, random_rows


def window_of(made: list[dict[str, object]]) -> list[str]:
    model = Model()
    for item in made:
        model.feed(item)
    return [str(each["message"]["id"]) for each in model.window]


@pytest.mark.parametrize("seed", range(40))
def test_growth(open_space: OpenSpace, store: Store, seed: int) -> None:
    rng = random.Random(seed)
    made, listed = random_rows(rng, rng.randint(5, 60))
    lines = [b"{\n" if item["type"] == "damage" else jsonl([item]) for item in made]
    head = jsonl([session()])
    grown, whole = open_space("a"), open_space("b")
    for end in sorted(rng.sample(range(len(made)), 4)):
        torn = lines[end][: rng.randint(0, len(lines[end]) - 2)]
        store.conversation(head + b"".join(lines[:end]) + torn, window_of(made[:end]))
        import_directory(grown, store.path)
    store.conversation(head + b"".join(lines), listed or window_of(made))
    import_directory(grown, store.path)
    import_directory(whole, store.path)
    assert records(grown) == records(whole)
    assert grown.repo.set_hash().state == whole.repo.set_hash().state
    assert import_directory(grown, store.path).written == 0
    assert list(grown.verify()) == []
