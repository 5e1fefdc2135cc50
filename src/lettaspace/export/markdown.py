"""Conversations as Markdown, for people. Times are in UTC, so that the same conversation always
gives the same file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lettaspace.conversation import formats, pairing
from lettaspace.conversation.jsontext import dumps
from lettaspace.conversation.message import Message
from lettaspace.errors import Damaged, InvalidInput, NotFound
from lettaspace.export import jsonform
from lettaspace.export.document import WINDOW, Document, turns, utc
from lettaspace.export.mdtext import code, escaped, fenced, quoted
from lettaspace.page.images import image_size
from lettaspace.page.words import counted

LONG_LINES = 60
"""More lines of a tool's output than these are folded."""

_LABELS = {"user": "User", "assistant": "Assistant", "toolResult": "Tool result"}
_ENDINGS = {"error": "ended in an error", "aborted": "stopped", "length": "cut off at the limit"}


def markdown(document: Document) -> Iterator[str]:
    """The file in pieces, a message or more in each."""
    yield "\n\n".join(_heading(document)) + "\n"
    for group in turns(document.messages):
        yield "".join(f"\n{block}\n" for block in _Turn(document, group).blocks())
    if document.left_out:
        lines = [
            f"- #{each['seq']} {code(each['rkey'])}: {escaped(each['reason'])}"
            for each in document.left_out
        ]
        yield "\n---\n\nNot in the window, because no model can be given it:\n\n"
        yield "\n".join(lines) + "\n"


def _heading(document: Document) -> Iterator[str]:
    found = document.conversation
    yield f"# {escaped(found.title or '') or '(no title)'}"
    facts = {
        "Conversation": code(found.rkey),
        "Address": code(found.uri),
        "Letta": code(str(found.letta["key"])) if "key" in found.letta else "",
        "Agent": escaped(document.agent_name or "") or code(found.agent.rpartition("/")[2]),
        "Begun": escaped(utc(found.created_at)),
        "Last used": escaped(utc(found.updated_at)),
        "Messages": f"{found.messages:,}, {found.active:,} of them in the window",
        "Shown": "the window: what the model sees" if document.part == WINDOW else "",
        "Worked in": code(found.cwd) if found.cwd else "",
        "Tags": ", ".join(map(escaped, found.tags)),
        "Forked from": _fork(found.forked_from),
        "Incomplete": "what was brought in is known to lack something" if found.incomplete else "",
        "Secrets": "replaced where they were found" if document.redaction else "left in",
    }
    yield "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
    if document.prompt_text is not None:
        yield _folded("Compiled system prompt", fenced(document.prompt_text))


def _at(message: Message) -> str:
    return escaped(utc(message.created_at))


def _fork(fork: Mapping[str, Any] | None) -> str:
    at = (fork or {}).get("conversation")
    return code(str(at.get("uri"))) if isinstance(at, Mapping) else ""


class _Turn:
    """One message with the results of its calls; most have none."""

    def __init__(self, document: Document, group: Sequence[Message]) -> None:
        self.document = document
        self.first, *self.rest = group
        self.placed: set[str] = set()

    def blocks(self) -> Iterator[str]:
        yield from self.message(self.first)
        for result in self.rest:
            if result.rkey not in self.placed:
                yield from self.message(result)

    def message(self, message: Message) -> Iterator[str]:
        covered = message.compacted_message_ids
        label = _LABELS.get(message.role) or escaped(self.document.text(message.role))
        if covered is not None:
            yield "---"
            yield f"**Compaction: #{message.seq} summarises {counted(len(covered), 'message')}.**"
            label = "Summary"
        body, marks = self.body(message)
        yield f"## #{message.seq} {label} · {_at(message)}{marks}"
        yield from body or ["*Nothing was said.*"]

    def body(self, message: Message) -> tuple[list[str], str]:
        """What a message says, and what is to be said of it."""
        marks = [] if message.active else ["compacted"]
        marks += message.flags
        try:
            payload = message.form(images=False)
        except (Damaged, InvalidInput, NotFound) as error:
            marks.append("unreadable")
            why = jsonform.reason(error, self.document.redaction)
            raw = _json(jsonform.stored(message, self.document.redaction))
            blocks = [f"This message cannot be read: {escaped(why)}. As it is stored:", raw]
        else:
            payload = self.document.payload(payload)
            blocks = list(self.payload(message, payload))
            if isinstance(payload, dict):
                if payload.get("isError") is True:
                    marks.append("failed")
                if payload.get("stopReason") in _ENDINGS:
                    marks.append(_ENDINGS[payload["stopReason"]])
        return blocks, f" ({', '.join(marks)})" if marks else ""

    def payload(self, message: Message, payload: Any) -> Iterator[str]:
        known = formats.of(message.value)
        if known is None or not isinstance(payload, dict):
            name = code(self.document.text(message.format))
            yield f"Of a format that is not known here, {name} version {message.version}:"
            yield _json(payload)
            return
        if known.form is None:
            for _, text in known.texts(message.data, message.open_blob):
                yield quoted(self.document.text(text))
            return
        results = self.results(message)
        content = payload.get("content")
        for part in content if isinstance(content, list) else [content]:
            yield from self.part(message, part)
            if _is_call(part):
                for result in next(results, ()):
                    yield from self.result(result)
        if payload.get("errorMessage"):
            yield "**Error**"
            yield _as_text(payload["errorMessage"])

    def part(self, message: Message, part: Any) -> Iterator[str]:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            if message.role == "toolResult":
                yield _output(part["text"])
            elif part["text"].strip():
                yield quoted(part["text"])
        elif kind == "thinking" and isinstance(part.get("thinking"), str):
            if part["thinking"].strip():
                yield _folded("Thinking", quoted(part["thinking"]))
        elif kind == "toolCall":
            yield f"**Call** {_word(part.get('name'))} · {_word(part.get('id'))}"
            yield _json(part.get("arguments"))
        elif kind == "image":
            size = image_size(part.get("data"))
            kind = part.get("mimeType")
            about = [escaped(kind) if isinstance(kind, str) and kind else "unknown type"]
            about += [] if size is None else [counted(size, "byte")]
            yield f"*Image: {', '.join(about)}.*"
        elif part is not None:
            yield _json(part)

    def results(self, message: Message) -> Iterator[list[Message]]:
        """For each call of the message, in order, its results."""
        found = {
            each.call.id: [self.rest[at - 1] for at in each.results]
            for each in pairing.Ledger([message, *self.rest]).calls
        }
        # Of calls with one id, the first has the results.
        return (found.pop(call.id, []) for call in pairing.calls(message))

    def result(self, result: Message) -> Iterator[str]:
        self.placed.add(result.rkey)
        body, marks = self.body(result)
        yield f"**Result** · #{result.seq} · {_at(result)}{marks}"
        yield from body or ["*No output.*"]


def _is_call(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") == "toolCall"
        and isinstance(part.get("id"), str)
    )


def _word(value: Any) -> str:
    return code(value) if isinstance(value, str) else "-"


def _output(text: str) -> str:
    lines = text.count("\n") + 1
    block = fenced(text)
    return block if lines <= LONG_LINES else _folded(counted(lines, "line"), block)


def _as_text(value: Any) -> str:
    return fenced(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    compact = dumps(value)
    return fenced(compact if len(compact) <= 80 else dumps(value, indent=2), "json")


def _folded(label: str, block: str) -> str:
    return f"<details><summary>{label}</summary>\n\n{block}\n\n</details>"
