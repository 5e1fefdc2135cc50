"""What of a commit is not put into a work tree unasked: code, and links that lead outside.

Letta runs whatever JavaScript lies in a memory's `mods/` when it starts, and a model runs the
scripts of its skills. So code that comes from elsewhere is left out of the work tree until
somebody has said that it may come. In the history it is always whole.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lettaspace.errors import Damaged
from lettaspace.letta.repository import Repository

MODS = "mods"

SUFFIXES = frozenset(
    [
        ".js",
        ".mjs",
        ".cjs",
        ".jsx",
        ".ts",
        ".mts",
        ".cts",
        ".tsx",
        ".node",
        ".wasm",
        ".py",
        ".pyw",
        ".pyc",
        ".sh",
        ".bash",
        ".zsh",
        ".fish",
        ".ksh",
        ".csh",
        ".pl",
        ".rb",
        ".lua",
        ".php",
        ".tcl",
        ".awk",
        ".ps1",
        ".psm1",
        ".bat",
        ".cmd",
        ".vbs",
        ".exe",
        ".com",
        ".scr",
        ".dll",
        ".so",
        ".dylib",
        ".jar",
        ".class",
        ".go",
        ".rs",
        ".applescript",
        ".scpt",
        ".desktop",
        ".command",
    ]
)

EXECUTABLE = "100755"
LINK = "120000"

_MAX_LINKS = 40
_MAX_TARGETS = 1 << 20
_IGNORED = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, 0xFEFF])


@dataclass(frozen=True, slots=True)
class Held:
    """Paths of a commit that are not in a work tree yet and need a word first."""

    code: frozenset[str]
    links: frozenset[str]

    def without(self, allow_code: bool) -> frozenset[str]:
        """What stays out of the work tree."""
        return self.links if allow_code else self.links | self.code


def held(repository: Repository, commit: str, present: Mapping[str, tuple[str, str]]) -> Held:
    """The code and the links that lead outside, without what is `present` (path to mode and
    object) in the work tree already: that is the user's own. Raises Damaged."""
    every = _tree(repository, commit)
    named = {path: entry for path, entry in every.items() if entry[0] == LINK}
    contents = list(repository.git.blobs([name for _, name in named.values()], _MAX_TARGETS))
    if len(contents) < len(named) or None in contents:
        raise Damaged(f"{repository.path}: the links of commit {commit} cannot be read")
    links = dict(zip(named, (data or b"" for data in contents), strict=True))
    fresh = [path for path, entry in every.items() if present.get(path) != entry]
    code = {path for path in fresh if is_code(path, every[path][0])}
    return Held(
        frozenset(code),
        frozenset(path for path in fresh if path in links and leads_outside(path, links)),
    )


def is_code(path: str, mode: str) -> bool:
    """Whether a file can be run, by its name and mode; all of `mods/` counts."""
    first, *_ = path.split("/")
    # On some file systems these are the same name.
    if _folded(first) == MODS or mode == EXECUTABLE:
        return True
    dot = path.rfind(".")
    return dot >= 0 and _folded(path[dot:]) in SUFFIXES


def leads_outside(path: str, links: Mapping[str, bytes]) -> bool:
    """Whether a link of a tree leads out of it, into its `.git`, or in a circle. `links` are all
    of the tree's, with their targets."""
    steps = 0
    here = path.split("/")[:-1]
    ahead = _parts(links[path])
    while ahead:
        step = ahead.pop(0)
        if step == "/" or _folded(step) == ".git" or "\\" in step:
            return True
        if step in ("", "."):
            continue
        if step == "..":
            if not here:
                return True
            here.pop()
            continue
        here.append(step)
        target = links.get("/".join(here))
        if target is not None:
            steps += 1
            if steps > _MAX_LINKS:
                return True
            here.pop()
            ahead = _parts(target) + ahead
    return False


def patterns(paths: Iterable[str]) -> bytes:
    """The lines of a sparse-checkout file that leave out exactly these files, and perhaps some
    whose names differ in a line break only."""
    lines = [f"!/{_pattern(path)}\n".encode("utf-8", "surrogateescape") for path in sorted(paths)]
    return b"".join([b"/*\n", *lines])


def _pattern(path: str) -> str:
    quoted = "".join(f"\\{each}" if each in "\\*?[]" else each for each in path)
    quoted = quoted.replace("\n", "?").replace("\r", "?")
    return quoted[:-1] + "\\ " if quoted.endswith(" ") else quoted


def _parts(target: bytes) -> list[str]:
    text = target.decode("utf-8", "surrogateescape")
    return ["/"] if text.startswith("/") or not text else text.split("/")


def _folded(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name.translate(_IGNORED)).casefold()
    return plain.rstrip(". ") if len(plain) > 1 else plain


def _tree(repository: Repository, commit: str) -> dict[str, tuple[str, str]]:
    """Mode and object by path; other repositories that are mounted are left out."""
    listed = repository.ask("its files", "ls-tree", "-r", "-z", "--full-tree", commit)
    found = {}
    for entry in listed.split("\0")[:-1]:
        head, _, path = entry.partition("\t")
        mode, kind, name = head.split(" ")
        if kind == "blob":
            found[path] = (mode, name)
    return found
