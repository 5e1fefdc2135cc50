"""Timing: interleaved rounds, medians, wall and processor time side by side."""

import gc
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds: by the clock, and of processor time (user and system)."""

    wall: float
    cpu: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu)

    def per(self, count: int) -> "Cost":
        return Cost(self.wall / count, self.cpu / count)

    def to_json(self) -> dict[str, float]:
        return {"wall": self.wall, "cpu": self.cpu}


def timed(run: Callable[[], object]) -> Cost:
    """The cost of one call in this process."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def spawned(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """The cost of one process from its start to its end. Raises when it fails."""
    before, wall = os.times(), time.perf_counter()
    silence = subprocess.DEVNULL
    subprocess.run(command, check=True, stdin=silence, stdout=silence, env=environment)
    took, after = time.perf_counter() - wall, os.times()
    used = after.children_user + after.children_system
    return Cost(took, used - before.children_user - before.children_system)


def interleaved(rounds: int, *measures: Callable[[], Cost], parts: int = 1) -> list[Cost]:
    """Medians over rounds in which each is measured in turn: what disturbs the machine for
    longer than a turn disturbs them all. A round has `parts` turns, whose costs are added."""
    found: list[list[Cost]] = [[] for _ in measures]
    for _ in range(rounds):
        sums = [Cost(0.0, 0.0)] * len(measures)
        for _ in range(parts):
            sums = [cost + measure() for cost, measure in zip(sums, measures, strict=True)]
        for costs, cost in zip(found, sums, strict=True):
            costs.append(cost)
    return [middle(costs) for costs in found]


def middle(costs: Sequence[Cost]) -> Cost:
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))
