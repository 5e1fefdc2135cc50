"""Large transcripts: memory does not grow with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.letta.build import AGENT, Store, at, b1, message, result, row, rows, session

PROBE = """
import json, resource, sys
from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
with Space.open(sys.argv[1]) as space:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = import_directory(space, sys.argv[2])
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    listed = len(space.conversations())
    print(json.dumps({
        "kib": after - before, "listed": listed,
        "messages": report.messages.new, "incomplete": report.incomplete,
    }))
"""


def probe(home: Path, directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(home), str(directory)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write(store: Store, count: int, size: int, largest: int) -> None:
    ids = [f"ui-msg-{n}" for n in range(1, count + 1)]
    directory = store.conversation(b"", ids, created=at(0), agent=AGENT)
    with (directory / "messages.jsonl").open("w") as file:
        file.write(json.dumps(session()) + "\n")
        for number in range(1, count + 1):
            text = f"{number} " + "kiln " * ((largest if number == count // 2 else size) // 5)
            made = result(number, f"c{number}", text)
            if number % 20 == 1:
                made = message(number, "user", f"go {number}")
            file.write(json.dumps(row(made, f"e{number}", None)) + "\n")


def test_o46_large_transcripts(tmp_path: Path) -> None:
    """Scaled down to 20 MB, with one row of 2 MB and 100 small conversations."""
    small, large = Store(tmp_path / "small"), Store(tmp_path / "large")
    write(small, 300, 5000, 2_000_000)
    write(large, 4000, 5000, 2_000_000)
    for number in range(2, 102):
        key = f"conversation:local-conv-{number}"
        large.conversation(rows(b1()), key=key, created=at(number))
    few = probe(tmp_path / "home-small", small.path)
    many = probe(tmp_path / "home-large", large.path)
    assert (few["messages"], many["messages"]) == (300, 4400)
    assert not many["incomplete"]
    assert many["listed"] == 101
    # Thirteen times as much to read; the batch in hand and SQLite's cache are all that grows.
    assert many["kib"] < few["kib"] + 30_000
