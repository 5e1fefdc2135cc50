"""`python -m tests.fuzz [TARGET…]`: see docs/fuzzing.md."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from tests.fuzz.keeping import distinct
from tests.fuzz.mutating import MAX_LENGTH, mutations, smaller
from tests.fuzz.registry import CORPUS, TARGETS, corpus, load

HANG = 10
"""Seconds after which an input counts as one that hangs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="of the random changes")
    parser.add_argument("--atheris", action="store_true", help="let atheris follow the coverage")
    parser.add_argument("--found", type=Path, help="below it atheris puts what reached new code")
    parser.add_argument("--keep", type=Path, help="add from such a directory what reaches new code")
    parser.add_argument("--input", type=Path, help="only run the target on this file")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    if options.input:
        for name in names:
            load(name)[0](options.input.read_bytes())
        return 0
    if options.keep:
        for name in names:
            keep(name, options.keep / name)
        return 0
    if options.atheris:
        if len(names) != 1:
            parser.error("atheris runs one target at a time")
        return with_atheris(names[0], options.seconds, options.seed, options.found)
    return max(without(name, options.seconds, options.seed) for name in names)


def without(name: str, seconds: float, seed: int) -> int:
    """Runs a target over changes of its corpus until the time is up. Returns an exit code."""
    fuzz, words = load(name)
    kept = corpus(name)
    end = time.monotonic() + seconds
    runs, longest = 0, 0.0
    for data in chain(kept, mutations(kept, words, seed)):
        start = time.monotonic()
        if start > end and runs >= len(kept):
            break
        runs += 1
        if (fault := _fault(fuzz, data)) is not None:
            small = data
            if not isinstance(fault, Hang):  # which would take too long
                small = smaller(data, lambda part: _place(_fault(fuzz, part)) == _place(fault))
            path = Path(f"fuzz-{name}-{sha256(small).hexdigest()[:12]}")
            path.write_bytes(small)
            traceback.print_exception(fault)
            print(f"{name}: failed after {runs} runs; the input is in {path}")  # noqa: T201
            return 1
        longest = max(longest, time.monotonic() - start)
    print(f"{name}: {runs} runs, the longest took {longest:.3f} s")  # noqa: T201
    return 0


def with_atheris(name: str, seconds: float, seed: int, found: Path | None) -> int:
    """Does not come back: libFuzzer ends the process, and prints what it found."""
    import atheris

    with atheris.instrument_imports(include=["lettaspace", "http_sf", "markdown_it"]):
        fuzz, words = load(name)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))  # left behind, as nothing runs afterwards
    place = (found or folder) / name
    place.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, object] = {
        "max_total_time": int(seconds),
        "seed": seed,
        "timeout": HANG,
        "max_len": MAX_LENGTH,
        "artifact_prefix": f"fuzz-{name}-",
        "rss_limit_mb": 2048,
    }
    if words:
        arguments["dict"] = folder / "words"
        (folder / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in words))
    flags = [f"-{key}={value}" for key, value in arguments.items()]
    # What is new goes to the first of the directories.
    atheris.Setup([sys.argv[0], *flags, str(place), str(CORPUS / name)], fuzz)
    atheris.Fuzz()
    return 0


def keep(name: str, found: Path) -> None:
    """Adds to a target's corpus those files of a directory that reach something new."""
    fuzz, _ = load(name)
    more = (path.read_bytes() for path in found.glob("*"))
    for data in distinct(fuzz, more, always=corpus(name)):
        if len(data) <= MAX_LENGTH:
            (CORPUS / name / sha256(data).hexdigest()[:12]).write_bytes(data)


def _fault(fuzz: Callable[[bytes], Any], data: bytes) -> BaseException | None:
    try:
        with _at_most(HANG):
            fuzz(data)
    except Exception as error:
        return error
    return None


def _place(error: BaseException | None) -> object:
    """What tells a fault from another."""
    if error is None:
        return None
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), frame.filename, frame.lineno


class Hang(Exception):
    pass


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
