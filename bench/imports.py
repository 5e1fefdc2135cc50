"""Importing a storage directory: time against parsing it, and memory against its size."""

from collections.abc import Callable

from bench.child import Outcome, in_child
from bench.context import Context
from bench.figure import Figure, Goal, Side, ratio
from bench.measure import Cost, interleaved, middle, timed
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory

TIME_GOAL = Goal(25)
MEMORY_GOAL = Goal(1.25)


def large(context: Context) -> list[Figure]:
    """The import of 100,000 messages against `json.loads` of every row."""
    directory, rounds = context.large, 2
    ours, bare = interleaved(
        rounds,
        _cost(context.import_large),
        _cost(lambda: in_child("load", directory.path)),
    )
    return [
        ratio(
            "import-100k",
            (f"importing {directory.messages} messages", ours),
            ("json.loads of every row", bare),
            TIME_GOAL,
            rounds=rounds,
            messages=directory.messages,
            bytes=directory.bytes,
        )
    ]


def memory(context: Context) -> list[Figure]:
    """The most memory an import of 100,000 messages takes against that of 10,000."""
    few = in_child("import", context.small.path, context.work / "small-home")
    many = context.large_import
    return [
        Figure(
            "import-memory",
            many.memory / few.memory,
            Side(f"importing {many.messages} messages", memory=many.memory),
            Side(f"importing {few.messages} messages", memory=few.memory),
            MEMORY_GOAL,
        )
    ]


def again(context: Context) -> list[Figure]:
    """A second import, nothing having changed, against the first."""
    first, rounds = context.large_import, context.rounds(5)
    with Space.open(context.large_home) as space:
        second = middle(
            [timed(lambda: import_directory(space, context.large.path)) for _ in range(rounds)]
        )
    return [
        ratio(
            "second-import",
            ("importing again, nothing changed", second),
            ("importing", first.cost),
            rounds=rounds,
        )
    ]


def verify(context: Context) -> list[Figure]:
    """`verify` of the store against the import that filled it."""
    first = context.large_import
    with Space.open(context.large_home) as space:
        cost = timed(lambda: _count(space))
    return [ratio("verify", ("verifying the store", cost), ("importing", first.cost))]


def _count(space: Space) -> int:
    return sum(1 for _ in space.verify())


def _cost(task: Callable[[], Outcome]) -> Callable[[], Cost]:
    return lambda: task().cost
