"""Messages as people look at them: what each part is, and which result belongs to which call.

`present` turns the messages of a page into `Shown` objects, which `templates/messages.html`
lays out. Everything from outside that is in them is text, to be escaped, or Markup made by the
modules beside this one, which let nothing through.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Protocol

from markupsafe import Markup

from lettaspace.conversation import formats, jsontext
from lettaspace.conversation.message import Message
from lettaspace.conversation.pairing import Ledger
from lettaspace.conversation.preview import ASIDE
from lettaspace.conversation.redaction import Redacting
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.page import code, diff, jsonview, markdown
from lettaspace.page.images import image_bytes, image_size
from lettaspace.page.shown import (
    CallPart,
    Folded,
    ImagePart,
    OutputPart,
    Part,
    Problem,
    RawPart,
    Shown,
    SummaryOf,
    TextPart,
)
from lettaspace.page.words import local_time

LONG_LINES = 24
LONG_TEXT = 3_000
"""Characters. What is longer than either is folded."""

CUT = 60_000
"""Characters of one text that a page of many messages shows; the message's own page has all."""

CUT_ALONE = 2_000_000

_VERSIONS = token_bytes(32)


class Links(Protocol):
    """Where what a page mentions can be seen. None: nowhere."""

    def message(self, rkey: str) -> str | None: ...
    def alone(self, rkey: str) -> str | None:
        """A page of that message, uncut."""

    def record(self, rkey: str) -> str | None: ...
    def covered(self, rkey: str) -> str | None:
        """What the summary with that TID covers."""

    def image(self, message: Message, part: int, data: Any) -> str | None: ...


LABELS = {"user": "User", "assistant": "Assistant", "toolResult": "Tool result"}


def present(
    messages: Iterable[Message],
    links: Links,
    *,
    redaction: Redacting | None = None,
    limit: int = CUT,
) -> Iterator[Shown]:
    """The messages in order; a tool's result stands in the call it answers, if that is among
    them. `limit` is how many characters of one text are shown."""
    messages = list(messages)
    results: dict[int, dict[str, list[Message]]] = {}
    placed: set[str] = set()
    for paired in Ledger(messages).calls:
        found = [messages[at] for at in paired.results]
        results.setdefault(paired.at, {}).setdefault(paired.call.id, []).extend(found)
        placed.update(each.rkey for each in found)
    for at, message in enumerate(messages):
        if message.rkey not in placed:
            yield _Presenter(links, redaction, limit, results.get(at, {})).shown(message)


@dataclass(slots=True)
class _Presenter:
    links: Links
    redaction: Redacting | None
    limit: int
    results: Mapping[str, list[Message]] = field(default_factory=dict)
    filename: str | None = None
    """The file that a tool was asked to read."""

    def shown(self, message: Message) -> Shown:
        marks = [] if message.active else ["compacted"]
        marks += message.flags
        role, facts = message.role, []
        parts: Sequence[Part]
        try:
            payload = message.form(images=False)
        except (Damaged, InvalidInput, NotFound) as error:
            payload = None
            marks.append("unreadable")
            # The reason names blobs by their hashes.
            reason = f": {error}" if self.redaction is None else ""
            parts = [Problem(f"This message cannot be read{reason}.")]
        else:
            if self.redaction is not None:
                payload = self.redaction.json(payload)
            parts = list(self.payload(message, payload))
            if isinstance(payload, dict) and formats.of(message.value) is not None:
                facts = list(_facts(payload))
                if payload.get("isError") is True:
                    marks.append("failed")
        summary = self.summary(message, payload)
        if summary is not None:
            role = "summary"
        return Shown(
            rkey=message.rkey,
            seq=message.seq,
            role=role,
            label="Summary" if summary is not None else LABELS.get(role, role),
            at=message.created_at,
            time=local_time(message.created_at),
            version=self.version(message),
            active=message.active,
            marks=marks,
            facts=facts,
            parts=parts,
            summary=summary,
            covered_by=message.covered_by,
            link=self.links.message(message.rkey),
            record=self.links.record(message.rkey),
            alone=self.links.alone(message.rkey),
            covered_link=self.links.message(message.covered_by) if message.covered_by else None,
        )

    def version(self, message: Message) -> str:
        """What is another when the record is; no hash of it where secrets are redacted, since
        with the rest of a message known, a hash lets short secrets be guessed."""
        cid = str(message.cid).encode()
        if self.redaction is None:
            return cid.decode()
        return blake2b(cid, key=_VERSIONS, digest_size=12).hexdigest()

    def summary(self, message: Message, payload: Any) -> SummaryOf | None:
        covered = message.compacted_message_ids
        if covered is None:
            return None
        facts = []
        stats = _at(payload, "metadata", "compaction", "stats")
        before, after = (
            _whole(stats, "context_tokens_before"),
            _whole(stats, "context_tokens_after"),
        )
        if before is not None and after is not None:
            facts.append(f"{before:,} → {after:,} tokens")
        if isinstance(trigger := _at(stats, "trigger"), str):
            facts.append(trigger.replace("_", " "))
        first = covered[0] if covered else None
        return SummaryOf(len(covered), first, self.links.covered(message.rkey), facts)

    def payload(self, message: Message, payload: Any) -> Iterator[Part]:
        known = formats.of(message.value)
        if known is None or not isinstance(payload, dict):
            about = f"Format {message.format}, version {message.version}, is not known here."
            yield RawPart(jsonview.render(payload), about)
            return
        if known.form is None:
            yield from self.foreign(message, known)
            return
        content = payload.get("content")
        for at, part in enumerate(content if isinstance(content, list) else [content]):
            yield from self.part(message, at, part)
        if payload.get("errorMessage"):
            yield Problem(f"The provider answered with an error: {payload['errorMessage']}")

    def foreign(self, message: Message, known: formats.Format) -> Iterator[Part]:
        """A message of a format that a harness has registered: its texts and its calls."""
        for where, text in known.texts(message.data, message.open_blob):
            if self.redaction is not None:
                text = self.redaction.text(text)
            if where == "thinking":
                yield Folded("Thinking", markdown.render(text))
            else:
                yield from self.said(message, text)
        for call in known.calls(message.data, message.open_blob):
            yield CallPart(call.id, call.name, Markup(""), self.answers(call.id))

    def part(self, message: Message, at: int, part: Any) -> Iterator[Part]:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            if message.role == "toolResult":
                yield self.output(part["text"])
            else:
                yield from self.said(message, part["text"])
        elif kind == "thinking" and isinstance(part.get("thinking"), str):
            text = part["thinking"]
            if text or part.get("redacted"):
                about = "" if text else "the provider keeps it to itself"
                yield Folded("Thinking", markdown.render(self.shortened(text)), about)
        elif kind == "toolCall":
            yield self.call(part)
        elif kind == "image":
            yield self.image(message, at, part)
        elif part is not None:
            yield RawPart(jsonview.render(part))

    def said(self, message: Message, text: str) -> Iterator[Part]:
        """What was said; what the harness said beside it is folded."""
        at = 0
        if message.role == "user":
            for aside in ASIDE.finditer(text):
                if before := text[at : aside.start()].strip():
                    yield TextPart(markdown.render(self.shortened(before)))
                label = aside[1].replace("_", " ").replace("-", " ").capitalize()
                yield Folded(label, markdown.render(self.shortened(aside[2])))
                at = aside.end()
        rest = text[at:]
        if rest.strip():
            yield TextPart(markdown.render(self.shortened(rest)))
            if len(rest) > self.limit:
                yield Problem(f"{len(rest) - self.limit:,} more characters are not shown here.")

    def shortened(self, text: str) -> str:
        return text if len(text) <= self.limit else text[: self.limit]

    def output(self, text: str) -> OutputPart:
        lines = text.count("\n") + (not text.endswith("\n"))
        shown = self.shortened(text)
        if diff.looks_like_diff(shown):
            html = diff.highlight(shown)
        elif (whole := _json(shown)) is not None:
            html = jsonview.render(whole)
        elif self.filename is not None and "\x1b" not in shown:
            html = code.highlight(shown, filename=self.filename)
        else:
            html = code.terminal(shown)
        is_long = lines > LONG_LINES or len(text) > LONG_TEXT
        return OutputPart(html, lines, is_long, len(text) - len(shown))

    def call(self, part: Mapping[str, Any]) -> CallPart:
        name, call_id = _text(part.get("name")) or "?", _text(part.get("id")) or ""
        arguments = part.get("arguments")
        html = jsonview.arguments(name, arguments) if arguments not in (None, {}) else Markup("")
        read = _file_read(name, arguments)
        return CallPart(call_id, name, html, self.answers(call_id, read))

    def answers(self, call_id: str, read: str | None = None) -> "tuple[Shown, ...]":
        inner = _Presenter(self.links, self.redaction, self.limit, filename=read)
        return tuple(inner.shown(each) for each in self.results.get(call_id, ()))

    def image(self, message: Message, at: int, part: Mapping[str, Any]) -> ImagePart:
        data = part.get("data")
        size = image_size(data)
        about = _text(part.get("mimeType")) or "image"
        if size is not None:
            about += f", {size:,} bytes" if size < 10_000 else f", {size / 1000:,.0f} KB"
        kind = _text(part.get("mimeType")) or ""
        if "svg" in kind.lower() and (source := self.svg(message, data)) is not None:
            return ImagePart(None, about, source)
        return ImagePart(self.links.image(message, at, data), about)

    def svg(self, message: Message, data: Any) -> Markup | None:
        try:
            source = image_bytes(data, message.open_blob).decode()
        except (Damaged, InvalidInput, NotFound, UnicodeDecodeError):
            return None
        if self.redaction is not None:
            source = self.redaction.text(source)
        return code.highlight(self.shortened(source), "xml")


def _file_read(name: str, arguments: Any) -> str | None:
    """The file whose content a call asks for."""
    if "read" not in name.lower():
        return None
    paths = (_text(_at(arguments, key)) for key in ("file_path", "path", "filename"))
    return next((path for path in paths if path), None)


def _facts(payload: Mapping[str, Any]) -> Iterator[str]:
    if payload.get("role") != "assistant":
        if isinstance(payload.get("toolName"), str):
            yield payload["toolName"]
        return
    if model := _text(payload.get("model")) or _text(
        _at(payload, "metadata", "provider", "model_id")
    ):
        yield model
    usage = payload.get("usage") or _at(payload, "metadata", "provider", "usage")
    read = [_whole(usage, key) or 0 for key in ("input", "cacheRead", "cacheWrite")]
    if sum(read):
        yield f"{sum(read):,} in"
    if said := _whole(usage, "output"):
        yield f"{said:,} out"
    cost = _at(usage, "cost", "total")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 < cost < 1e9:
        yield f"${cost:.4f}"
    if payload.get("stopReason") in ("error", "aborted", "length"):
        yield {
            "error": "ended in an error",
            "aborted": "stopped",
            "length": "cut off at the limit",
        }[payload["stopReason"]]


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _whole(value: Any, key: str) -> int | None:
    found = _at(value, key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found < 1 << 53 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(text: str) -> Any:
    """The object or list that a text is, None for any other."""
    if text[:1] not in ("{", "[") or len(text) > CUT:
        return None
    try:
        return jsontext.loads(text)
    except (InvalidInput, ValueError):
        return None
