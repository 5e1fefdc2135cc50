"""Where agents' memory directories are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lettaspace.errors import InvalidInput
from lettaspace.letta.build import agent_key
from lettaspace.letta.memfs import memory_directory, memory_path


def test_it_is_where_letta_has_it(tmp_path: Path) -> None:
    path = tmp_path / "memfs" / "agent-local-1" / "memory"
    path.mkdir(parents=True)
    assert memory_path(tmp_path, "agent-local-1") == path
    found = memory_directory(tmp_path, "agent-local-1")
    assert found is not None
    assert found.path == path.resolve()


def test_an_id_that_is_no_key_is_found_by_the_key_made_of_it(tmp_path: Path) -> None:
    path = tmp_path / "memfs" / "agent ☕" / "memory"
    path.mkdir(parents=True)
    key = agent_key("agent ☕")
    assert key != "agent ☕"
    assert memory_path(tmp_path, key) == path


@pytest.mark.parametrize("agent", ["..", ".", "", "../..", "/etc", "agent-a/../agent-b", "agent-B"])
def test_no_id_leads_elsewhere(tmp_path: Path, agent: str) -> None:
    (tmp_path / "letta/memfs/agent-b/memory").mkdir(parents=True)
    (tmp_path / "memory").mkdir()
    (tmp_path / "letta/memory").mkdir()
    assert memory_path(tmp_path / "letta", agent) is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "memory").mkdir(parents=True)
    memfs = tmp_path / "letta" / "memfs"
    (memfs / "agent-b").mkdir(parents=True)
    (memfs / "agent-a").symlink_to(outside)
    (memfs / "agent-b" / "memory").symlink_to(outside / "memory")
    for agent in ("agent-a", "agent-b"):
        assert memory_path(tmp_path / "letta", agent) is None


def test_where_there_is_none(tmp_path: Path) -> None:
    assert memory_directory(None, "agent-a") is None
    assert memory_directory(tmp_path / "gone", "agent-a") is None
    (tmp_path / "memfs" / "agent-a").mkdir(parents=True)
    assert memory_directory(tmp_path, "agent-a") is None
    (tmp_path / "memfs" / "agent-a" / "memory").write_text("a file")
    assert memory_directory(tmp_path, "agent-a") is None


def test_a_path_that_git_cannot_be_kept_inside_of(tmp_path: Path) -> None:
    (tmp_path / "a:b" / "memfs" / "agent-a" / "memory").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="may not hold"):
        memory_directory(tmp_path / "a:b", "agent-a")
