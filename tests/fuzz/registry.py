"""The targets, and where their corpora are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

TARGETS = (
    *("car", "cbor", "cid", "codec", "data", "documents", "host", "jsontext", "jwt", "lexicon"),
    *("markdown", "methods", "page", "proof", "rows", "scopes", "syntax", "targets", "uri", "xrpc"),
)
CORPUS = Path(__file__).parent / "corpus"


def load(name: str) -> tuple[Callable[[bytes], None], Sequence[bytes]]:
    """The function of a target, and words its inputs are made of."""
    module = import_module(f"tests.fuzz.{name}")
    return getattr(module, f"fuzz_{name}"), getattr(module, "WORDS", ())


def corpus(name: str) -> list[bytes]:
    """The inputs that are kept for a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
