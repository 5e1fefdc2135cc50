"""What is measured in a process of its own: `python -m bench.child TASK DIRECTORY [HOME]`."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import Cost, timed

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task cost, and the most memory its process ever had."""

    wall: float
    cpu: float
    memory: int
    messages: int

    @property
    def cost(self) -> Cost:
        return Cost(self.wall, self.cpu)


def in_child(task: str, directory: Path, home: Path | None = None) -> Outcome:
    """Does a task in a fresh process."""
    command = [sys.executable, "-m", "bench.child", task, str(directory)]
    if home is not None:
        command.append(str(home))
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return Outcome(**json.loads(done.stdout))


def message_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("conversations/*/messages.jsonl"))


def load_lines(files: Iterable[Path]) -> int:
    """Reads every row with the standard library, and keeps none."""
    count = 0
    for path in files:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
                count += 1
    return count


def _import(directory: Path, home: Path) -> tuple[Cost, int]:
    from lettaspace.conversation.space import Space
    from lettaspace.letta.importer import import_directory

    with Space.open(home) as space:
        counts: list[int] = []
        cost = timed(lambda: counts.append(import_directory(space, directory).messages.new))
    return cost, counts[0]


def _load(directory: Path) -> tuple[Cost, int]:
    files = message_files(directory)
    counts: list[int] = []
    cost = timed(lambda: counts.append(load_lines(files)))
    return cost, counts[0]


def _peak_memory() -> int:
    """Bytes. Linux hands the parent's peak on to a child through ru_maxrss, so there the
    process's own is read."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(task: str, directory: str, home: str = "") -> None:
    if task == "import":
        cost, messages = _import(Path(directory), Path(home))
    else:
        cost, messages = _load(Path(directory))
    print(json.dumps(asdict(Outcome(cost.wall, cost.cpu, _peak_memory(), messages))))


if __name__ == "__main__":
    main(*sys.argv[1:])
