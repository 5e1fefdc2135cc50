"""Every error lettaspace raises on purpose.

The set is closed: callers may branch on the class or on `code`, which never changes.
The message is one line that names what is wrong and where; it never holds message
content, tokens or keys.
"""


class LettaspaceError(Exception):
    """Base of all errors a caller is expected to handle."""

    code = "Error"


class InvalidInput(LettaspaceError):
    """An argument, identifier or encoding is malformed."""

    code = "InvalidInput"


class InvalidRecord(LettaspaceError):
    """A record does not satisfy its lexicon or the data model."""

    code = "InvalidRecord"


class NotFound(LettaspaceError):
    """What was named does not exist."""

    code = "NotFound"


class Ambiguous(LettaspaceError):
    """A name matches more than one thing."""

    code = "Ambiguous"


class Conflict(LettaspaceError):
    """The state a write was based on is no longer the state of the store."""

    code = "Conflict"


class Damaged(LettaspaceError):
    """Stored or source data cannot be read back as what it claims to be."""

    code = "Damaged"


class StoreUnavailable(LettaspaceError):
    """The store cannot be opened, locked or written."""

    code = "StoreUnavailable"
