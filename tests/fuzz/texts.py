"""What targets read from a fuzzer's bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def text(data: bytes) -> str:
    """Any bytes as a str: UTF-8, and where they are not, lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def outcome(read: Callable[[], T], *expected: type[Exception]) -> tuple[T | None, str | None]:
    """What a function gives, or the name of the expected error it raised. Others pass."""
    try:
        return read(), None
    except expected as error:
        str(error).encode()  # a message that cannot be sent or logged is a fault of its own
        return None, type(error).__name__
