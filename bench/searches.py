"""Searching the store against scanning the rows for the same text."""

from collections.abc import Sequence
from pathlib import Path

from bench.child import message_files
from bench.context import Context
from bench.figure import Figure, speedup
from bench.measure import interleaved, timed
from lettaspace.conversation.space import Space

QUERIES = {
    "search-rare": "ticket_certificate",
    "search-word": "naïve",
    "search-common": "the",
    "search-two": "記録",
    "search-one": "½",
}
"""By name: three characters and more use the index, one and two scan its texts."""


def search(context: Context) -> list[Figure]:
    """The first fifty hits and the number of all, against looking into every row."""
    rounds = context.rounds(3)
    files = message_files(context.large.path)
    _ = context.large_import
    figures = []
    with Space.open(context.large_home) as space:
        for name, query in QUERIES.items():
            found = space.search(query).total
            ours, scan = interleaved(
                rounds,
                lambda query=query: timed(lambda: space.search(query)),  # type: ignore[misc]
                lambda query=query: timed(lambda: _scan(files, query)),  # type: ignore[misc]
            )
            figures.append(
                speedup(
                    name,
                    ("searching the store", ours),
                    ("scanning every row's text", scan),
                    rounds=rounds,
                    found=found,
                    characters=len(query),
                )
            )
    return figures


def _scan(files: Sequence[Path], query: str) -> int:
    wanted = query.casefold()
    found = 0
    for path in files:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                found += wanted in line.casefold()
    return found
