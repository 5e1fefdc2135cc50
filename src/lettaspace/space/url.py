"""Where a store is: a path or a URL. No message repeats a URL, for it may hold a password."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lettaspace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class PostgresURL:
    """A `postgresql://` URL in the words of libpq, which reads it. Its text is not printed."""

    text: str = field(repr=False)


def read_target(target: Path | str) -> Path | PostgresURL:
    """The file or server that `target` names: a path, `sqlite:///relative/path`,
    `sqlite:////absolute/path`, or `postgresql://user:password@host:port/database`.

    Raises InvalidInput.
    """
    if isinstance(target, Path):
        return target
    if not _LIKE_A_URL.match(target):
        return Path(target)
    scheme = target.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        return PostgresURL(target)
    if scheme == "sqlite":
        return _file(target)
    raise InvalidInput("a database's URL begins with sqlite:/// or postgresql://")


def _file(target: str) -> Path:
    try:
        parts = urlsplit(target)
    except ValueError:
        raise InvalidInput("the URL of a SQLite database cannot be read") from None
    if parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(
            "the URL of a SQLite database is sqlite:/// and a path, without host or parameters"
        )
    path = unquote(parts.path.removeprefix("/"))
    if path in ("", ":memory:"):
        raise InvalidInput("the URL of a SQLite database names no file")
    return Path(path)


# A path may hold a colon. What begins like a URL is never taken for one, lest a password that
# was mistyped into it becomes a file's name.
_LIKE_A_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://|(?:postgres|sqlite)[a-z0-9+]*:", re.IGNORECASE
)
