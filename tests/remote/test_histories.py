"""Machines that share a host: whatever they do and however they sync, all is there in the end.

CI runs a few histories of each kind. LETTASPACE_HISTORIES=N runs N of each, and
LETTASPACE_HISTORIES_SEED=N begins at another seed.
"""

from __future__ import annotations

import os

import pytest

from tests.remote.histories import CALM, Step, World, history, template

COUNT = int(os.environ.get("LETTASPACE_HISTORIES", "10"))
FIRST = int(os.environ.get("LETTASPACE_HISTORIES_SEED", "0"))


TURN = [Step(1, "call"), Step(1, "say"), Step(1, "result")]
CUT_PARTING = [
    Step(1, "lost"),
    Step(1, "compact", size=5),
    Step(0, "call"),
    Step(0, "cut", size=7),
    Step(1, "sync"),
]
"""The push that moves a branch ends in the middle, and the branch was compacted meanwhile."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return template(tmp_path_factory.mktemp("template") / "home")


def run(home, tmp_path, steps, machines, seed=0):
    world = World(tmp_path / "world", home, machines, seed)
    try:
        world.run(steps)
    finally:
        world.close()


@pytest.mark.parametrize("machines", [2, 3])
def test_random_histories(home, tmp_path, machines):
    for seed in range(FIRST, FIRST + COUNT):
        try:
            run(home, tmp_path, history(seed, machines, CALM), machines, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} of {machines} machines: {error}") from error


def test_a_message_whose_summary_went_elsewhere_is_active_where_it_moved(home, tmp_path):
    steps = [
        Step(1, "say"),
        Step(2, "call"),
        Step(1, "sync"),
        Step(1, "compact", size=6),
        Step(0, "pull"),
        Step(1, "sync"),
        Step(2, "pull"),
        Step(0, "say"),
    ]
    run(home, tmp_path, steps, 3, seed=46)


def test_branches_that_are_both_there_are_parted_by_whoever_sees_it(home, tmp_path):
    steps = [
        Step(1, "say"),
        Step(0, "say"),
        Step(1, "say"),
        Step(0, "sync"),
        Step(1, "blind"),
        Step(0, "sync"),
        Step(0, "compact", size=7),
        Step(1, "sync"),
    ]
    run(home, tmp_path, steps, 2, seed=118)


def test_what_landed_first_was_not_therefore_known(home, tmp_path):
    steps = [
        Step(1, "say"),
        Step(1, "compact", size=7),
        Step(1, "say"),
        Step(0, "say"),
        Step(0, "lost"),
        Step(1, "blind"),
        Step(1, "say"),
        Step(0, "say"),
    ]
    run(home, tmp_path, steps, 2, seed=12)


def test_what_was_rewritten_behind_a_lost_answer_stays_said(home, tmp_path):
    """The host has what we sent first. That we have only marked it since cannot be told by
    looking at the two; that we said it before can be told by our log."""
    steps = [
        Step(1, "say", 4, 3),
        Step(1, "lost", 5, 8),
        Step(1, "compact", 7, 1),
        Step(1, "rewrite", 1, 6),
    ]
    run(home, tmp_path, steps, 3, seed=58)


def test_what_is_there_beside_a_fork_was_not_said_behind_what_went_into_it(home, tmp_path):
    """Three branches, of which one machine has parted two, and another one the same two."""
    steps = [
        Step(0, "say"),
        Step(1, "say"),
        Step(0, "sync"),
        Step(1, "pull"),
        Step(2, "say"),
        Step(2, "compact", size=6),
        Step(2, "lost"),
        Step(2, "say"),
    ]
    run(home, tmp_path, steps, 3, seed=83)


def test_what_came_after_the_part_of_a_branch_that_was_moved_follows_it(home, tmp_path):
    """The push that moves the branch ends in the middle."""
    steps = [
        *TURN,
        Step(1, "call"),
        Step(1, "lost"),
        Step(0, "call"),
        Step(0, "cut", size=7),
        Step(1, "say"),
        Step(1, "sync"),
    ]
    run(home, tmp_path, steps, 2, seed=33)


def test_so_does_what_a_compaction_has_given_another_seq(home, tmp_path):
    steps = [
        *TURN,
        Step(1, "call"),
        *CUT_PARTING,
    ]
    run(home, tmp_path, steps, 2, seed=33)


def test_what_the_host_has_already_is_not_put_back_where_it_stood(home, tmp_path):
    steps = [
        *TURN,
        Step(1, "sync"),
        Step(0, "sync"),
        Step(1, "call"),
        *CUT_PARTING,
        Step(0, "call"),
    ]
    run(home, tmp_path, steps, 2, seed=33)


def test_a_copy_is_one_though_its_original_has_moved(home, tmp_path):
    steps = [
        Step(0, "call"),
        Step(1, "say"),
        Step(1, "sync"),
        Step(1, "say"),
        Step(2, "sync"),
        Step(1, "lost"),
        Step(2, "say"),
        Step(2, "sync"),
        Step(1, "say"),
    ]
    run(home, tmp_path, steps, 3, seed=34)


def test_whose_version_is_the_first_has_not_rewritten_it(home, tmp_path):
    """It cannot tell what was said before, for its own answer was lost."""
    steps = [
        Step(1, "call"),
        Step(0, "say"),
        Step(0, "cut", size=1),
        Step(1, "lost"),
        Step(1, "rewrite", 9, 3),
        Step(1, "sync"),
    ]
    run(home, tmp_path, steps, 2, seed=3)


def test_branches_that_are_both_there_are_parted_though_one_was_rewritten(home, tmp_path):
    steps = [
        Step(1, "say"),
        Step(1, "rewrite", 9, 8),
        Step(0, "say"),
        Step(1, "say"),
        Step(0, "sync"),
        Step(1, "blind"),
        Step(0, "sync"),
        Step(0, "compact", size=7),
    ]
    run(home, tmp_path, steps, 2, seed=118)
