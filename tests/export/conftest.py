"""A space with conversations to export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.space import Space
from lettaspace.space.writes import Create
from tests.conversation.talk import TIME, Talk

SECRET = "hunter2-hunter2"

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
"""A picture of one point, 70 bytes."""


class Fake:
    """Replaces SECRET, wherever it stands in a string."""

    def text(self, text: str) -> str:
        return text.replace(SECRET, "[removed]")

    def json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(each) for each in value]
        if isinstance(value, dict):
            return {self.text(key): self.json(each) for key, each in value.items()}
        return value


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with Space.open(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def talk(space: Space) -> Talk:
    return Talk(space)


def state(talk: Talk, **fields: Any) -> None:
    """Gives the conversation a title and the like."""
    collection = "xyz.quasigod.lab.letta.conversationState"
    value = {"conversation": talk.uri, "updatedAt": TIME, **fields}
    talk.space.repo.apply_writes([Create(collection, talk.rkey, value)])


def drop_blobs(space: Space) -> None:
    """Loses all sealed content."""
    with space.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs")
