"""What a handler is given, and what it gives back."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lettaspace.atproto.methods import Method
from lettaspace.server.errors import XrpcError

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class Call:
    """One request, checked against its method's lexicon.

    `params` has the query's parameters with defaults, `input` the JSON body in the data model
    (CIDs and bytes as such); of a body of another type, `body` has the bytes and `media_type`
    its type. `headers` are all of them, in order, names in lower case. `client` is the address
    the connection came from. `deadline` is the `time.monotonic()` at which an answer is late.
    `caller` is what the method's gate returned.
    """

    method: Method
    params: dict[str, Any]
    headers: RawHeaders
    client: str | None
    deadline: float
    input: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = ""
    caller: Any = None

    def values(self, name: str) -> list[str]:
        """The values of every header of this name, in order."""
        wanted = name.lower().encode()
        return [value.decode("latin-1") for key, value in self.headers if key == wanted]

    def header(self, name: str) -> str | None:
        """The value of a header. Raises XrpcError, InvalidRequest, if there is more than one."""
        values = self.values(name)
        if len(values) > 1:
            raise XrpcError("InvalidRequest", f"header {name} is given twice")
        return values[0] if values else None

    def remaining(self) -> float:
        """Seconds until the deadline, at least zero."""
        return max(0.0, self.deadline - time.monotonic())


@dataclass(slots=True)
class Answer:
    """A method's answer: a value of the data model for JSON, or `Answer.raw`, or nothing.

    `headers` replace those of the same name that every answer has, such as `cache-control`.
    """

    value: Any = None
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | Iterator[bytes] = b""
    media_type: str = ""
    size: int | None = None

    @classmethod
    def raw(
        cls,
        body: bytes | Iterator[bytes],
        media_type: str,
        headers: Sequence[tuple[str, str]] = (),
        *,
        size: int | None = None,
    ) -> "Answer":
        """An answer of another type: bytes, or an iterator of bytes for what is long.

        The iterator is run in worker threads, not always the same one, and closed when the
        answer is sent or nobody waits for it any more. What it raises before its first 64 KiB
        are there is answered as an error. `size` is its length in bytes, where that is known.
        """
        return cls(None, headers, body, media_type, size)
