"""Renders memory and prompts as Letta Code 0.34.12 does, byte for byte.

Pure functions on the files of one commit. Two layouts: v2 where there is a `MEMORY.md` at the
root, else v1 (`system/**`). What is as it is only because Letta does it so is said on the spot.

Differences, both on purpose:

- Letta puts core memory into the template with JavaScript's `replaceAll`, for which `$$`, `$&`,
  `` $` `` and `$'` in the memory mean something else. Then its `coreMemory` is no substring of its
  `content`, which the lexicon demands; here the text goes in as it is (`letta_prompt` tells what
  Letta would have written).
- Letta leaves out files of more than 1 MiB without a word. Here they count, and the result is
  too large for the record, which is an error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lettaspace.conversation.collation import collation_key

CORE_MEMORY = "{CORE_MEMORY}"
"""Where in a template core memory goes."""

INDEX = "MEMORY.md"

JS_SPACE = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What JavaScript's `trim` takes away. Python's `strip` takes other characters."""

_FRONT = re.compile(r"---\n(.*?)\n---(?:\n(.*))?\Z", re.DOTALL)
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
_QUOTED = re.compile(r'[\x00-\x1f"\\\x7f\ud800-\udfff]')
_DOLLAR = re.compile(r"(\$[$&`'])")
# Names that every JavaScript object has: what stands under them in v1's tree gets lost.
_INHERITED = {
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__",
    "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString",
    "toString", "valueOf",
}  # fmt: skip
_METADATA = re.compile(r"(?:\A|\n\n)<memory_metadata>\n(?:- [^\n]*\n)*</memory_metadata>\Z")


@dataclass(frozen=True, slots=True)
class _Page:
    path: str
    text: str
    description: str

    @property
    def label(self) -> str:
        return self.path.removesuffix(".md")


def is_v2(files: Mapping[str, bytes]) -> bool:
    """Whether files are of layout v2, which has no metadata block."""
    return INDEX in files


def unseen(files: Mapping[str, bytes], *, quote_path: bool = True) -> list[str]:
    """Markdown files that no prompt will show because of their names.

    Letta lists files with a command that quotes unusual names, and then doesn't know them for
    Markdown: those with `"`, `\\`, a control character, an outer space, or, unless git's
    `core.quotePath` is off, anything beyond ASCII.
    """
    return [path for path in files if path.endswith(".md") and not _is_seen(path, quote_path)]


def render_core_memory(
    files: Mapping[str, bytes],
    *,
    agent_id: str,
    conversation_id: str,
    compiled_at: datetime,
    message_count: int,
    quote_path: bool = True,
) -> str:
    """The core memory of a commit's files (path to content).

    The keywords but the last only stand in layout v1's metadata block, which also is all there
    is of no files at all. `message_count` counts as Letta shows messages: see `prompt`.
    """
    # git's order; it decides between names that sort as equal.
    seen = sorted(path for path in files if path.endswith(".md") and _is_seen(path, quote_path))
    if is_v2(files):
        return _root_projection({path: files[path] for path in seen})
    metadata = _metadata(agent_id, conversation_id, compiled_at, message_count)
    if not seen:
        return metadata
    return f"{_system_projection([_page(path, files[path]) for path in seen])}\n\n{metadata}"


def without_metadata(core_memory: str) -> str:
    """Core memory less layout v1's metadata block, which changes with every compilation."""
    return _METADATA.sub("", core_memory)


def render_prompt(template: str, core_memory: str) -> str:
    """The prompt: core memory in place of `{CORE_MEMORY}`, or after a blank line at the end."""
    return _with_place(template).replace(CORE_MEMORY, core_memory)


def letta_prompt(template: str, core_memory: str) -> str:
    """The prompt as Letta writes it, which differs where core memory holds `$$` and the like."""
    if _DOLLAR.search(core_memory) is None:
        return render_prompt(template, core_memory)
    whole = _with_place(template)
    result = []
    end = 0
    for place in re.finditer(re.escape(CORE_MEMORY), whole):
        before, after = whole[: place.start()], whole[place.end() :]
        meaning = {"$$": "$", "$&": CORE_MEMORY, "$`": before, "$'": after}
        pieces = _DOLLAR.split(core_memory)
        result += [whole[end : place.start()], *(meaning.get(piece, piece) for piece in pieces)]
        end = place.end()
    return "".join([*result, whole[end:]])


def render_memory_update(core_memory: str, revision: str | None) -> str:
    """What Letta tells a model, as a system message after the last one, once memory moved."""
    return (
        "<memory_update>\n"
        "The local memory filesystem has been edited and committed at revision "
        f"{revision or 'unknown'}.\n"
        "This updates part of your persona/system memory. Treat the following freshly rendered "
        "memory context as authoritative from now on; where it conflicts with earlier memory "
        "context, this newer memory context wins.\n"
        f"\n{core_memory.rstrip(JS_SPACE)}\n</memory_update>"
    )


def _is_seen(path: str, quote_path: bool) -> bool:
    if path != path.strip(JS_SPACE):
        return False
    return _PLAIN.fullmatch(path) is not None if quote_path else _QUOTED.search(path) is None


def _with_place(template: str) -> str:
    return template if CORE_MEMORY in template else f"{template.rstrip(JS_SPACE)}\n\n{CORE_MEMORY}"


def _page(path: str, data: bytes) -> _Page:
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    found = _FRONT.match(text)
    if found is None:
        return _Page(path, text, "")
    # Only with front matter does the body lose its leading blank lines.
    return _Page(path, (found[2] or "").strip(JS_SPACE), _description(found[1].split("\n")))


def _description(lines: Sequence[str]) -> str:
    """The description in front matter of Letta's own small dialect of YAML: the last one given;
    quotes are part of it; a list is none."""
    value = ""
    for number, line in enumerate(lines):
        key, colon, rest = line.partition(":")
        if not colon or line[0] in JS_SPACE or key.strip(JS_SPACE) != "description":
            continue
        value = rest.strip(JS_SPACE)
        if re.fullmatch(r"[|>][+-]?", value):
            value = _block_scalar(lines[number + 1 :], folded=value[0] == ">")
    return value


def _block_scalar(lines: Sequence[str], *, folded: bool) -> str:
    block = []
    for line in lines:
        if line.strip(JS_SPACE) and line[0] not in JS_SPACE:
            break
        block.append(line)
    texts = [line for line in block if line.strip(JS_SPACE)]
    indent = min((len(line) - len(line.lstrip(JS_SPACE)) for line in texts), default=0)
    texts = [line[indent:] if line.strip(JS_SPACE) else "" for line in block]
    if not folded:
        return "\n".join(texts).strip(JS_SPACE)
    value = ""
    breaks = 0
    for line in texts:
        if line:
            value += ("\n" * breaks or " ") + line
        breaks = 0 if line else breaks + 1
    return value.strip(JS_SPACE)


def _root_projection(files: Mapping[str, bytes]) -> str:
    """Layout v2: the pages at the root, then the index with the directories that have one."""
    pages = [_page(path, data) for path, data in files.items() if "/" not in path and path != INDEX]
    blocks = []
    for page in sorted(pages, key=lambda page: collation_key(page.label)):
        lines = [f"<{page.label}>"]
        if page.description:
            lines.append(f"<description>{page.description}</description>")
        if body := page.text.rstrip(JS_SPACE):
            lines.append(body)
        blocks.append("\n".join([*lines, f"</{page.label}>"]))
    lines = ["<memory>"]
    if body := _page(INDEX, files[INDEX]).text.rstrip(JS_SPACE):
        lines.append(body)
    children = sorted(
        (path for path in files if path.count("/") == 1 and path.endswith(f"/{INDEX}")),
        key=collation_key,
    )
    # The index of skills/ is none of memory's.
    names = [_escaped(path.partition("/")[0]) for path in children if path != f"skills/{INDEX}"]
    if names:
        deferred = [f'<directory path="{name}/" index="{name}/{INDEX}" />' for name in names]
        lines += ["<deferred-memory>", *deferred, "</deferred-memory>"]
    blocks.append("\n".join([*lines, "</memory>"]))
    return "\n\n".join(blocks)


def _system_projection(pages: Sequence[_Page]) -> str:
    """Layout v1: the persona, the tree of system/ with its texts, the names of the rest."""
    lines = ["Reminder: <projection> contains the local path of the memory file projection."]
    system = [page for page in pages if page.path.startswith("system/")]
    for page in system:
        if page.label == "system/persona":
            lines += ["", "<self>", "<projection>$MEMORY_DIR/system/persona.md</projection>"]
            lines += [page.text.rstrip(JS_SPACE), "</self>"]
    system = [page for page in system if page.label != "system/persona"]
    external = [page.path for page in pages if not page.path.startswith(("system/", "skills/"))]
    if system or external:
        lines += ["", "<memory>", *_system_tree(system)]
        if external:
            lines += ["<external_projection>", "${MEMORY_DIR}/", *_drawn(_tree(external), "")]
            lines.append("</external_projection>")
        lines.append("</memory>")
    return "\n".join(lines)


class _Node(dict[str, "_Node"]):
    """A directory of names; a file where `page` or `leaf` says so."""

    page: _Page | None = None
    leaf = False


def _system_tree(pages: Sequence[_Page]) -> list[str]:
    root = _Node()
    for page in pages:
        node: _Node | None = root
        names = [name for name in page.label.removeprefix("system/").split("/") if name]
        for name in names:
            if node is not None:
                node = None if name in _INHERITED else node.setdefault(name, _Node())
        if names and node is not None:
            node.page = page
    return list(_nested(root, ()))


def _nested(node: _Node, above: tuple[str, ...]) -> Sequence[str]:
    pad = "  " * len(above)
    lines: list[str] = []
    for name in sorted(node, key=collation_key):
        child = node[name]
        where = (*above, name)
        lines.append(f"{pad}<{name}>")
        if (page := child.page) is not None:
            path = f"$MEMORY_DIR/system/{'/'.join(where)}.md"
            lines.append(f"{pad}  <projection>{path}</projection>")
            if page.description:
                lines.append(f"{pad}  <description>{page.description}</description>")
            if body := page.text.rstrip(JS_SPACE):
                lines.append(f"{pad}  {body}")
        lines += [*_nested(child, where), f"{pad}</{name}>"]
    return lines


def _tree(paths: Sequence[str]) -> _Node:
    root = _Node()
    for path in paths:
        node = root
        for name in path.split("/"):
            node = node.setdefault(name, _Node())
        node.leaf = True
    return root


def _drawn(node: _Node, before: str) -> Sequence[str]:
    lines: list[str] = []
    names = sorted(node, key=lambda name: (node[name].leaf, collation_key(name)))
    for name in names:
        child = node[name]
        last = name == names[-1]
        lines.append(f"{before}{'└── ' if last else '├── '}{name}{'' if child.leaf else '/'}")
        lines += _drawn(child, f"{before}{'    ' if last else '│   '}")
    return lines


def _metadata(agent_id: str, conversation_id: str, compiled_at: datetime, count: int) -> str:
    at = compiled_at.astimezone(UTC)
    clock = f"{at.hour % 12 or 12:02}:{at:%M:%S} {'AM' if at.hour < 12 else 'PM'} UTC+0000"
    return (
        "<memory_metadata>\n"
        f"- AGENT_ID: {agent_id}\n"
        f"- CONVERSATION_ID: {conversation_id}\n"
        f"- System prompt last recompiled: {at.year}-{at:%m-%d} {clock}\n"
        f"- {count} previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )


def _escaped(text: str) -> str:
    for char, name in ("&", "amp"), ('"', "quot"), ("'", "#x27"), ("<", "lt"), (">", "gt"):
        text = text.replace(char, f"&{name};")
    return text
