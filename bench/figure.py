"""One figure: a ratio, what it should be, and what it was made of."""

from dataclasses import dataclass, field
from typing import Any

from bench.measure import Cost


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a ratio should lie."""

    value: float
    at_most: bool = True
    """False: at least."""

    def is_met(self, ratio: float) -> bool:
        return ratio <= self.value if self.at_most else ratio >= self.value

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things compared: seconds, bytes of memory or on the wire, or how many."""

    what: str
    wall: float | None = None
    cpu: float | None = None
    memory: int | None = None
    count: int | None = None

    @classmethod
    def of(cls, what: str, cost: Cost) -> "Side":
        return cls(what, cost.wall, cost.cpu)

    def to_json(self) -> dict[str, Any]:
        values = {
            "wallSeconds": self.wall,
            "cpuSeconds": self.cpu,
            "bytes": self.memory,
            "count": self.count,
        }
        return {"what": self.what} | {k: v for k, v in values.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio between two sides; `cpu` is the same ratio in processor time."""

    name: str
    ratio: float
    measured: Side
    baseline: Side
    goal: Goal | None = None
    cpu: float | None = None
    rounds: int = 1
    facts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.is_met(self.ratio) else "short"

    def line(self) -> str:
        goal = "" if self.goal is None else str(self.goal)
        cpu = "" if self.cpu is None else f"(cpu {_short(self.cpu)})"
        return f"{self.name:<24}{_short(self.ratio):>9}  {cpu:<15}{goal:<9}{self.verdict}".rstrip()

    def to_json(self) -> dict[str, Any]:
        goal = self.goal
        return {
            "name": self.name,
            "figure": self.ratio,
            "cpuFigure": self.cpu,
            "goal": None if goal is None else goal.value,
            "better": "higher" if goal is not None and not goal.at_most else "lower",
            "met": None if goal is None else goal.is_met(self.ratio),
            "measured": self.measured.to_json(),
            "baseline": self.baseline.to_json(),
            "rounds": self.rounds,
            "facts": self.facts,
        }


def ratio(
    name: str,
    measured: tuple[str, Cost],
    baseline: tuple[str, Cost],
    goal: Goal | None = None,
    *,
    rounds: int = 1,
    **facts: int,
) -> Figure:
    """How much more the first costs than the second."""
    (what, cost), (other, base) = measured, baseline
    return Figure(
        name,
        cost.wall / base.wall,
        Side.of(what, cost),
        Side.of(other, base),
        goal,
        _divided(cost.cpu, base.cpu),
        rounds,
        facts,
    )


def speedup(
    name: str,
    measured: tuple[str, Cost],
    baseline: tuple[str, Cost],
    goal: Goal | None = None,
    *,
    rounds: int = 1,
    **facts: int,
) -> Figure:
    """How much less the first costs than the second."""
    (what, cost), (other, base) = measured, baseline
    return Figure(
        name,
        base.wall / cost.wall,
        Side.of(what, cost),
        Side.of(other, base),
        goal,
        _divided(base.cpu, cost.cpu),
        rounds,
        facts,
    )


def _divided(cpu: float, base: float) -> float | None:
    # The clock for processor time may be too coarse for what was measured.
    return cpu / base if base > 0 else None


def _short(value: float) -> str:
    if value < 0.01:
        return "<0.01"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
