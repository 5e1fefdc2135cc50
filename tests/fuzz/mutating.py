"""A fuzzer that needs nothing else: inputs of a corpus, changed at random, but repeatably."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

MAX_LENGTH = 4096

_BYTES = b'\x00\x01\x7f\x80\xff{}[]",:/.%&=-\n 09Az'


def mutations(corpus: Sequence[bytes], words: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Inputs without end. The same arguments give the same ones."""
    random = Random(seed)
    seeds = [*corpus, b""]
    pieces = [*words, *(bytes([byte]) for byte in _BYTES)]
    while True:
        data = bytearray(random.choice(seeds)[:MAX_LENGTH])
        for _ in range(1 << random.randrange(4)):
            _change(data, random, seeds, pieces)
        yield bytes(data[:MAX_LENGTH])


def _change(
    data: bytearray, random: Random, seeds: Sequence[bytes], pieces: Sequence[bytes]
) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + 1 + int(random.expovariate(0.2)))
    match random.randrange(7):
        case 0:
            del data[at:end]
        case 1:
            data[at:at] = random.choice(pieces)
        case 2:
            data[at:end] = random.choice(pieces)
        case 3:
            data[at:at] = data[at:end] * random.randrange(1, 9)
        case 4 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 5 if at < len(data):
            data[at] = random.randrange(256)
        case _:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[at:end] = other[start : start + random.randrange(1, 65)]


def smaller(data: bytes, fails: Callable[[bytes], bool], tries: int = 2000) -> bytes:
    """A part of an input that still fails, from which no piece can be cut."""
    size = len(data)
    while size:
        at = 0
        while at < len(data) and tries:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data
