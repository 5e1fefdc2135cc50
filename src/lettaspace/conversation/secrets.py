"""Finding secrets in a text: where they stand and of which kind, never what they are.

The provider tokens are known by a library, which is loaded when the first text is looked at;
`secretrules` has a few rules of our own for what it leaves out. Nothing is ever sent anywhere,
and a text takes time in proportion to its length.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from lettaspace.conversation import secretrules
from lettaspace.conversation.secretrules import MARKER, Span

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

__all__ = ["SHORTEST", "Span", "find_secrets", "merged"]

SHORTEST = 10
"""No text of fewer characters is called a secret by itself."""

_PARTS = ("secret", "secret-access-key", "security-token", "passphrase", "api-key")
"""Ends of kinds that the library takes for half of a secret, and are one all the same."""

_AROUND = "\"'`\\ \t\r\n"
"""Belongs to the text around a secret, even where a rule of the library takes it along."""


def find_secrets(text: str) -> list[Span]:
    """The secrets in a text, in order and apart from one another.

    What `redaction` put in a secret's place is none.
    """
    if len(text) < SHORTEST:
        return []
    found = [*secretrules.find(text), *_by_library(text)]
    return merged(text, found) if found else []


@cache
def _scanner() -> "Scanner":
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules(), base64=False)


def _by_library(text: str) -> Iterator[Span]:
    # One byte for half a character, and no NUL, which would make the library guess encodings.
    data = text.replace("\0", " ").encode(errors="replace")
    findings = [
        (_kind(finding.rule_id), finding.visible, finding.location)
        for finding in _scanner().scan(data)
    ]
    if not findings:
        return
    places = None if len(data) == len(text) else _characters(data, findings)
    for kind, visible, location in findings:
        start, end = location["start_offset"], location["end_offset"]
        if places is not None:
            start, end = places[start], places[end]
        while start < end and text[start] in _AROUND:
            start += 1
        while start < end and text[end - 1] in _AROUND:
            end -= 1
        if start < end and (visible or kind.endswith(_PARTS)):
            yield Span(start, end, kind)


def _kind(rule: str) -> str:
    """What stands behind the family and before the number of a rule's name, as in
    `betterleaks.github-pat`, `veles.secrets/npm_token` and `betterleaks.auth0-domain.1`."""
    name = re.split(r"[./](?=[^./]*[a-z])", rule.lower())[-1].partition(".")[0]
    return re.sub("[^a-z0-9]+", "-", name).strip("-")[:64] or "secret"


def _characters(
    data: bytes, findings: Iterable[tuple[str, bool, Mapping[str, int]]]
) -> dict[int, int]:
    """For the offsets of findings into UTF-8, how many characters begin before each."""
    places: dict[int, int] = {}
    last = count = 0
    for offset in sorted(
        {each[2][edge] for each in findings for edge in ("start_offset", "end_offset")}
    ):
        count += len(data[last:offset].decode(errors="ignore"))
        places[offset] = count
        last = offset
    return places


def merged(text: str, found: Iterable[Span]) -> list[Span]:
    """Spans in order, without marks in them; those that overlap are one, of the first's kind."""
    spans: list[Span] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        if spans and span.start < spans[-1].end:
            last = spans[-1]
            spans[-1] = Span(last.start, max(last.end, span.end), last.kind)
        else:
            spans.append(span)
    marks = [match.span() for match in MARKER.finditer(text)]
    return list(_without(spans, marks)) if marks else spans


def _without(spans: Iterable[Span], marks: list[tuple[int, int]]) -> Iterator[Span]:
    at = 0
    for start, end, kind in spans:
        while at < len(marks) and marks[at][1] <= start:
            at += 1
        while at < len(marks) and marks[at][0] < end:
            mark_start, mark_end = marks[at]
            if start < mark_start:
                yield Span(start, mark_start, kind)
            start = mark_end
            if mark_end > end:  # the next span may touch it, too
                break
            at += 1
        if start < end:
            yield Span(start, end, kind)
