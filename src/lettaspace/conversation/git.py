"""Runs git in a repository that is somebody else's, and tells its refusals apart.

A repository's configuration is not to be trusted: a command that only reads can run programs
that `.git/config` names. So git gets an environment of our own, in which hooks, the file system
monitor, filters, transports and credential prompts are off, and nothing of our caller's `GIT_*`
variables. The user's own configuration counts, for `safe.directory` stands there.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, cast

# In the environment, because a filter's name may hold what the command line can't express.
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "diff.external": "",
    "submodule.recurse": "false",
}
_HEADER = re.compile(rb"[0-9a-f]{40,64} blob ([0-9]+)\n")
_MAX_SAID = 1 << 16
_UNREADABLE = re.compile("bad config|repository extension|repo version", re.IGNORECASE)


class MemoryKind(StrEnum):
    """What git answered about a memory directory."""

    OK = "ok"
    DETACHED = "detached"
    """Readable, but HEAD names a commit and no branch."""
    NO_DIRECTORY = "no-directory"
    NOT_A_REPOSITORY = "not-a-repository"
    NO_COMMITS = "no-commits"
    FOREIGN_OWNER = "foreign-owner"
    """Somebody else owns it, so git refuses (`safe.directory`)."""
    BROKEN_HEAD = "broken-head"
    """There is a repository, but what HEAD names cannot be read."""
    GIT_MISSING = "git-missing"
    TIMEOUT = "timeout"


class UnusableError(Exception):
    """git has no answer; `kind` says why, the text is one line that names the directory."""

    def __init__(self, kind: MemoryKind, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended. `out` is UTF-8; other bytes are there as surrogate escapes."""

    code: int
    out: str
    err: str
    cut: bool = False
    """There was more than was asked for; the command was ended, and `code` is 0."""


class Git:
    """git in one directory; each command ends within `timeout` seconds.

    Every method raises UnusableError.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Answer:
        """One command to its end. `given` is its input; `settings` is configuration above the
        repository's, `variables` is environment."""
        code, out, err = self.output(
            *arguments, given=given, settings=settings, variables=variables
        )
        return Answer(code, out.decode("utf-8", "surrogateescape"), err)

    def output(
        self,
        *arguments: str,
        given: bytes = b"",
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, str]:
        """Like `run`, for what is no text: how it ended, all it wrote, and what it said."""
        command = self._command("--no-pager", *arguments)
        try:
            done = subprocess.run(  # noqa: S603, the arguments are our own
                command,
                cwd=self.path,
                env=self._environment(settings or {}) | dict(variables or {}),
                input=given,
                capture_output=True,
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._late() from None
        except OSError as error:
            raise self._broken(error.strerror or "cannot be entered") from None
        err = done.stderr.decode("utf-8", "replace")
        if done.returncode:
            self._refuse(err)
        return done.returncode, done.stdout, err

    def read(self, *arguments: str, limit: int, given: str = "") -> Answer:
        """A command that looks at objects alone, of which at most `limit` bytes are read; `given`
        is its input. Paths among the arguments are meant literally."""
        command = self._command("--no-pager", "--literal-pathspecs", *arguments)
        with (
            tempfile.TemporaryDirectory() as place,
            # Files, unlike pipes, are never full: git waits for nobody but the reader of `out`.
            tempfile.TemporaryFile() as into,
            tempfile.TemporaryFile() as err,
        ):
            into.write(given.encode("utf-8", "surrogateescape"))
            into.seek(0)
            # With an index, git would take what lies in the work tree for what is committed.
            environment = self._environment({}) | {"GIT_INDEX_FILE": os.path.join(place, "none")}  # noqa: PTH118
            try:
                process = subprocess.Popen(  # noqa: S603, the arguments are our own
                    command,
                    cwd=self.path,
                    env=environment,
                    stdin=into,
                    stdout=subprocess.PIPE,
                    stderr=err,
                )
            except OSError as error:
                raise self._broken(error.strerror or "cannot be entered") from None
            with self._alarm(process) as alarm:
                out = cast(IO[bytes], process.stdout).read(limit + 1)
                cut = len(out) > limit
                if cut:
                    process.kill()
                process.wait()
                if alarm.finished.is_set():
                    raise self._late()
            err.seek(0)
            said = err.read(_MAX_SAID).decode("utf-8", "replace")
        answer = Answer(
            0 if cut else process.returncode,
            out[:limit].decode("utf-8", "surrogateescape"),
            said,
            cut,
        )
        if answer.code:
            self._refuse(answer.err)
        return answer

    def blobs(self, names: Sequence[str], limit: int) -> Iterator[bytes | None]:
        """The contents of objects, in order, from one process; None and the end for one that
        cannot be read, or with which all would be more than `limit` bytes."""
        process = subprocess.Popen(  # noqa: S603, the arguments are our own
            self._command("cat-file", "--batch"),
            cwd=self.path,
            env=self._environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with self._alarm(process) as alarm:
            into, out = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
            for name in names:
                data = _blob(into, out, name, limit)
                if data is None and alarm.finished.is_set():
                    raise self._late()
                yield data
                if data is None:
                    return
                limit -= len(data)

    def filters_off(self) -> dict[str, str]:
        """Settings that disarm every filter: comparing a file with the index would run it, as
        would writing the file."""
        off = {"clean": "", "smudge": "", "process": "", "required": "false"}
        return {f"{each}.{key}": off[key] for each in self._drivers("filter") for key in off}

    def merging_off(self) -> dict[str, str]:
        """Settings with which no merge driver runs: what one would merge is a conflict."""
        return {f"{each}.driver": "false" for each in self._drivers("merge")}

    def _drivers(self, kind: str) -> set[str]:
        """The `kind.<name>` that are configured."""
        found = self.run("config", "--null", "--name-only", "--get-regexp", rf"^{kind}\..*\.")
        return {name.rpartition(".")[0] for name in found.out.split("\0") if name}

    @contextmanager
    def _alarm(self, process: "subprocess.Popen[bytes]") -> Iterator[threading.Timer]:
        """Ends a process when its time is up, and in any case at the end."""
        alarm = threading.Timer(self.timeout, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            yield alarm
        finally:
            alarm.cancel()
            process.kill()
            process.communicate()

    def _command(self, *arguments: str) -> list[str]:
        if not os.path.isdir(self.path):  # noqa: PTH112, which does not raise
            raise UnusableError(MemoryKind.NO_DIRECTORY, self.path, "no such directory")
        program = shutil.which("git")
        if program is None:
            raise UnusableError(MemoryKind.GIT_MISSING, self.path, "git is not installed")
        return [program, *arguments]

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "LC_")) and name not in ("LANG", "LANGUAGE")
        }
        every = {**_SETTINGS, **settings}
        environment |= {
            "LC_ALL": "C",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            # Without it a plain directory inside another repository would answer as that one.
            "GIT_CEILING_DIRECTORIES": str(self.path.parent),
            "GIT_CONFIG_COUNT": str(len(every)),
        }
        for number, (name, value) in enumerate(every.items()):
            environment[f"GIT_CONFIG_KEY_{number}"] = name
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _refuse(self, said: str) -> None:
        """Raises if git refuses the repository as such."""
        if "dubious ownership" in said or "owned by someone else" in said:
            foreign = "somebody else owns it, so git does not read it (see git's safe.directory)"
            raise UnusableError(MemoryKind.FOREIGN_OWNER, self.path, foreign)
        if "not a git repository" in said:
            # git says the same where there is a .git whose HEAD is no HEAD.
            git = self.path / ".git"
            if os.path.isdir(git / "objects") or os.path.isfile(git):  # noqa: PTH112, PTH113
                raise self._broken("there is a .git, but git finds no usable HEAD in it")
            raise UnusableError(MemoryKind.NOT_A_REPOSITORY, self.path, "not a git repository")
        if _UNREADABLE.search(said):
            raise self._broken("git cannot read the repository's configuration")

    def _broken(self, what: str) -> UnusableError:
        return UnusableError(MemoryKind.BROKEN_HEAD, self.path, what)

    def _late(self) -> UnusableError:
        late = f"git did not answer in {self.timeout:g} seconds"
        return UnusableError(MemoryKind.TIMEOUT, self.path, late)


def _blob(into: IO[bytes], out: IO[bytes], name: str, limit: int) -> bytes | None:
    """Asks `cat-file --batch` for one object: only when it is read is the next one asked for,
    so that neither side ever waits for the other."""
    try:
        into.write(name.encode() + b"\n")
        into.flush()
    except OSError:
        return None
    header = _HEADER.fullmatch(out.readline(256))
    if header is None or int(header[1]) > limit:
        return None
    size = int(header[1])
    data = out.read(size + 1)
    return data[:size] if len(data) == size + 1 else None
