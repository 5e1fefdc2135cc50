"""Opening a window: against one of a short conversation, and against reading the rows."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.child import load_lines, message_files
from bench.context import ACTIVE, Context
from bench.figure import Figure, Goal, ratio, speedup
from bench.measure import Cost, interleaved, timed
from lettaspace.conversation.space import Space

SIZE_GOAL = Goal(1.3)
SPEED_GOAL = Goal(50, at_most=False)


def size(context: Context) -> list[Figure]:
    """The window of a long conversation against an equal one of a short conversation."""
    (long, long_home), (short, short_home) = context.long, context.short
    rounds = context.rounds(41)
    with Space.open(long_home) as one, Space.open(short_home) as other:
        ours, base = interleaved(rounds, opening(one, _only(one)), opening(other, _only(other)))
    return [
        ratio(
            "window-size",
            (f"the window of a conversation of {long.messages}", ours),
            (f"the window of a conversation of {short.messages}", base),
            SIZE_GOAL,
            rounds=rounds,
            active=ACTIVE,
        )
    ]


def against_rows(context: Context) -> list[Figure]:
    """Opening the store and the window in it against parsing all rows."""
    written, home = context.long
    files, rounds = message_files(written.path), context.rounds(5)
    with Space.open(home) as space:
        conversation = _only(space)
    ours, rows = interleaved(
        rounds,
        reopening(home, conversation),
        lambda: timed(lambda: load_lines(files)),
    )
    return [
        speedup(
            "window-vs-jsonl",
            ("opening the store and the window", ours),
            (f"json.loads of all {written.messages} rows", rows),
            SPEED_GOAL,
            rounds=rounds,
            active=ACTIVE,
        )
    ]


def growth(
    name: str,
    goal: Goal,
    what: str,
    grown: tuple[str, str],
    costs: Sequence[Cost],
    **facts: int,
) -> list[Figure]:
    """Figures of windows in a large and a small place (`grown` says which).

    `costs`: the large one and the small one in stores that are open, the large one with
    opening the store; then the same two with opening Letta Code's store, if that is there.
    """
    (large, small), (ours, base, opened, *theirs) = grown, costs
    figures = [ratio(name, (f"{what} {large}", ours), (f"{what} {small}", base), goal, **facts)]
    if theirs:
        their_large, their_small = (
            (f"Letta Code opening {what} {place}", cost)
            for place, cost in zip(grown, theirs, strict=True)
        )
        figures += [
            ratio(f"{name}-letta", (f"opening {what} {large}", opened), their_large, None, **facts),
            ratio(f"letta-{name}", their_large, their_small, None, **facts),
        ]
    return figures


def opening(space: Space, conversation: str) -> Callable[[], Cost]:
    """Reads a window in a store that is open, which is done once before."""
    _read(space, conversation)
    return lambda: timed(lambda: _read(space, conversation))


def reopening(home: Path, conversation: str) -> Callable[[], Cost]:
    """Opens the store, then the window."""
    return lambda: timed(lambda: _open(home, conversation))


def _open(home: Path, conversation: str) -> None:
    with Space.open(home) as space:
        _read(space, conversation)


def _only(space: Space) -> str:
    (conversation,) = space.conversations()
    return conversation.uri


def _read(space: Space, conversation: str) -> None:
    window = space.window(conversation)
    for message in window.messages:
        message.payload()
    if len(window.messages) != ACTIVE:
        raise RuntimeError(f"{len(window.messages)} messages in the window, not {ACTIVE}")
