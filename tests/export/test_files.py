"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lettaspace.errors import InvalidInput, StoreUnavailable
from lettaspace.export import files
from lettaspace.export.files import replaced


def _write(path: Path, content: bytes) -> None:
    with replaced(path) as file:
        file.write(content)


def _fail(path: Path, error: BaseException) -> None:
    with replaced(path) as file:
        file.write(b"new")
        raise error


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    _write(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    path.write_bytes(b"old")
    with replaced(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), OSError(28, "full")])
def test_nothing_is_left_of_a_file_that_failed(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "talk.md"
    path.write_bytes(b"old")
    expected = StoreUnavailable if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        _fail(path, error)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_nothing_is_left_when_the_last_steps_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    path = tmp_path / "talk.md"
    path.write_bytes(b"old")
    monkeypatch.setattr(files.os if step == "fsync" else Path, step, fails)
    with pytest.raises(StoreUnavailable, match=r"talk\.md: Input/output error"):
        _write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    path.write_bytes(b"old")
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from lettaspace.export.files import replaced\n"
        "with replaced(Path(sys.argv[1])) as file:\n"
        "    file.write(b'new'); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode < 0
    assert path.read_bytes() == b"old"


def test_a_link_is_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "talk.md", tmp_path / "link.md"
    path.write_bytes(b"old")
    link.symlink_to(path)
    _write(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path, pipe, loop, Path("a\0b"), Path(os.devnull)):
        with pytest.raises((InvalidInput, StoreUnavailable)):
            _write(path, b"new")
    assert Path(os.devnull).is_char_device()
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "loop"}


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "talk.md", tmp_path / "file" / "talk.md"):
        with pytest.raises(StoreUnavailable, match=r"^cannot write .*talk\.md: "):
            _write(path, b"new")
