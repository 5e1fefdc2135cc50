"""File events: which paths below some directories changed."""

import threading
from collections.abc import Sequence
from pathlib import Path

from watchfiles._rust_notify import RustNotify

ACTIVE = 50
IDLE = 200
"""Milliseconds in which events are collected. Each such step costs a little even if nothing
happens, so they are longer when nothing has happened for `REST`."""

REST = 30_000

_REMOTE = {
    "9p", "afs", "ceph", "cifs", "drvfs", "fakeowner", "fuseblk", "glusterfs", "lustre", "nfs",
    "nfs4", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
}  # fmt: skip


class Events:
    """Collects what changes below the opened directories, in a thread of its own.

    `wake` is set whenever there is something to be taken.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._failure: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, directories: Sequence[Path]) -> None:
        """Follows these directories and all below them, and no others any more. Nothing that
        happens after it is missed, unless there is a `failure`."""
        self.close()
        self._stop, self._failure = threading.Event(), None
        try:
            # Its own polling, where it has any, reads far more than a sweep.
            notify = RustNotify([str(each) for each in directories], False, False, REST, True, True)
        except Exception as error:
            self._fail(error)
            return
        self._thread = threading.Thread(
            target=self._run, args=(notify, self._stop), name="lettaspace-events", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends it; what was collected can still be taken."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> set[str]:
        """The paths that changed since the last time."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    @property
    def waiting(self) -> bool:
        """Whether there is something to be taken."""
        return bool(self._changed)

    def failure(self) -> str | None:
        """Why there are no events, once."""
        failure, self._failure = self._failure, None
        return failure

    def _run(self, notify: RustNotify, stop: threading.Event) -> None:
        step = ACTIVE
        try:
            with notify:
                while True:
                    changes = notify.watch(step, step, REST, stop)
                    if changes == "timeout":
                        step = IDLE
                    elif isinstance(changes, str):
                        return
                    else:
                        step = ACTIVE
                        with self._lock:
                            self._changed.update(path for _, path in changes)
                        self._wake.set()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = str(error) or type(error).__name__
        self._wake.set()


def are_certain(directory: Path) -> bool:
    """Whether events tell of all changes: not where the files are on another machine."""
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
        return True
    kind = file_system(str(directory.resolve()), mounts)
    return kind not in _REMOTE and not kind.startswith("fuse.")


def file_system(place: str, mounts: str) -> str:
    """The kind of file system that a path is on, by the text of /proc/self/mounts."""
    kind = longest = ""
    for line in mounts.splitlines():
        _, mount, found, *_ = [*line.split(" "), "", "", ""]
        mount = mount.replace("\\040", " ").rstrip("/")
        if (place + "/").startswith(mount + "/") and len(mount) >= len(longest):
            kind, longest = found, mount
    return kind
