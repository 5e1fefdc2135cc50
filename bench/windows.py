"""Opening a window: against one of a short conversation, and against reading the rows."""

from collections.abc import Callable
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
        ours, base = interleaved(rounds, _opening(one), _opening(other))
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
        conversation = _conversation(space)
    ours, rows = interleaved(
        rounds,
        lambda: timed(lambda: _open(home, conversation)),
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


def _open(home: Path, conversation: str) -> None:
    with Space.open(home) as space:
        _read(space, conversation)


def _opening(space: Space) -> Callable[[], Cost]:
    conversation = _conversation(space)
    _read(space, conversation)
    return lambda: timed(lambda: _read(space, conversation))


def _conversation(space: Space) -> str:
    (conversation,) = space.conversations()
    return conversation.uri


def _read(space: Space, conversation: str) -> None:
    window = space.window(conversation)
    for message in window.messages:
        message.payload()
    if len(window.messages) != ACTIVE:
        raise RuntimeError(f"{len(window.messages)} messages in the window, not {ACTIVE}")
