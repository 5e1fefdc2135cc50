"""Which spellings of a directory are one."""

from __future__ import annotations

import pytest

from lettaspace.conversation.projects import same


@pytest.mark.parametrize(
    "spellings",
    [
        (
            "C:\\Work\\Pear",
            "c:/Work/Pear",
            "C:/work/pear/",
            "c:\\\\work\\.\\PEAR",
            "\\\\?\\C:\\Work\\Pear",
        ),
        ("C:", "c:\\", "C:/"),
        ("\\\\nas\\Work", "//NAS/work/", "\\\\?\\UNC\\nas\\work"),
        ("/home/mira/pear", "/home/mira/pear/", "/home//mira/./pear"),
        ("/", "///"),
    ],
)
def test_they_are_one(spellings: tuple[str, ...]) -> None:
    assert len(set(map(same, spellings))) == 1


def test_these_are_not() -> None:
    others = [
        "/", "C:", "D:", "/c:/Work/Pear", "C:\\Work\\Pear", "D:\\Work\\Pear", "\\\\c\\Work\\Pear",
        "/Work/Pear", "/work/pear", "/Work\\Pear", "Work/Pear", "/home/mira/pear", "/home/mira",
        "/home/mira/../pear", "c:relative", " ", ".hidden",
    ]  # fmt: skip
    assert len(set(map(same, others))) == len(others)
