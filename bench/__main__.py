"""`python -m bench`: measures, and prints one line a figure. The exit code is 0 whatever the
figures are: they are read by people, and a busy machine is no error."""

import argparse
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import (
    append,
    compactions,
    host,
    imports,
    large,
    library,
    pages,
    reaching,
    restoring,
    searches,
    sethash,
    startup,
    syncing,
    unchanged,
    windows,
)
from bench.context import Context
from bench.figure import Figure
from lettaspace import __version__

BENCHMARKS: dict[str, Callable[[Context], list[Figure]]] = {
    "set-hash-add": sethash.add,
    "append": append.append,
    "library-append": library.append,
    "compact-1000": compactions.compact,
    "window-after-100": compactions.window_after,
    "help": startup.show_help,
    "import-100k": imports.large,
    "import-memory": imports.memory,
    "window-size": windows.size,
    "window-vs-jsonl": windows.against_rows,
    "restore-100k": restoring.large,
    "second-import": imports.again,
    "verify": imports.verify,
    "search": searches.search,
    "viewer-last-page": pages.last_page,
    "viewer-list": pages.long_list,
    "host-writes": host.writes,
    "host-reads": host.reads,
    "sync": syncing.sync,
    "reach": reaching.reach,
    "sync-noop-1000": unchanged.sync,
    "window-at-1m": large.window,
    "append-at-1m": large.append,
}


def machine() -> dict[str, Any]:
    """What the figures depend on, and nothing that names the machine."""
    return {
        "lettaspace": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "date": datetime.now(UTC).date().isoformat(),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which to run: {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="print all that was measured as JSON")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the size")
    parser.add_argument("--work", type=Path, help="where to put files, a disk to be measured")
    chosen = parser.parse_args(arguments)
    for name in chosen.name:
        if name not in BENCHMARKS:
            parser.error(f"no figure called {name}")
    before = machine()
    figures: list[Figure] = []
    with (
        TemporaryDirectory(prefix="lettaspace-bench-", dir=chosen.work) as work,
        Context(Path(work), quick=chosen.quick) as context,
    ):
        for name in chosen.name or BENCHMARKS:
            for figure in BENCHMARKS[name](context):
                figures.append(figure)
                if not chosen.json:
                    print(figure.line(), flush=True)
    if chosen.json:
        document = {"quick": chosen.quick, "machine": before}
        document["figures"] = [figure.to_json() for figure in figures]
        print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
