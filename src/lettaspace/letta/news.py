"""What a watcher says: everything once, until it changes."""

import contextlib
from collections.abc import Callable, Iterable

from lettaspace.letta.damage import (
    BARE_ROW,
    DIVERGED,
    OLDER_COPY,
    UNKNOWN_ROW,
    WINDOW_DIFFERS,
    Damage,
    Findings,
)
from lettaspace.letta.report import Report

OnReport = Callable[[Report], None]
OnProblem = Callable[[str], None]

# Their notes count messages, which become ever more.
_COUNTING = {BARE_ROW, DIVERGED, OLDER_COPY, UNKNOWN_ROW, WINDOW_DIFFERS}


class News:
    """Passes reports and problems on, without what was said before."""

    def __init__(self, on_report: OnReport | None, on_problem: OnProblem | None) -> None:
        self._on_report = on_report
        self._on_problem = on_problem
        self._problems: dict[str, str] = {}
        self._told: dict[str, set[tuple[str, int | None, str]]] = {}

    def problem(self, topic: str, text: str) -> None:
        """Something is in the way."""
        if self._problems.get(topic) != text:
            self._problems[topic] = text
            if self._on_problem is not None:
                # Whoever listens cannot end the watching by what it does with it.
                with contextlib.suppress(Exception):
                    self._on_problem(text)

    def solved(self, topic: str) -> None:
        """It no longer is."""
        self._problems.pop(topic, None)

    def stands(self, topic: str) -> bool:
        return topic in self._problems

    def listing(self, findings: Findings) -> None:
        """What is wrong with the names in the directory."""
        report = Report()
        report.findings.extend(self._new("", findings))
        self._tell(report)

    def report(self, report: Report, agents: Iterable[str]) -> None:
        """An import of some agents (their files' names) and conversations. It is passed on if
        something was written or is found for the first time."""
        findings, report.findings = report.findings, Findings()
        for name in agents:
            mine = Findings()
            for damage in findings:
                if damage.note.startswith(name):
                    mine.add(damage.kind, damage.row, damage.note)
            report.findings.extend(self._new(f"agent {name}", mine))
        for each in report.conversations:
            each.findings = self._new(each.key, each.findings)
        self._tell(report)

    def _tell(self, report: Report) -> None:
        if self._on_report is not None and (report.written or next(report.lines(), None)):
            try:
                self._on_report(report)
            except Exception as error:
                self.problem("report", f"a report was not taken: {type(error).__name__}")

    def _new(self, key: str, findings: Findings) -> Findings:
        told = self._told.get(key, set())
        self._told[key] = {_sign(damage) for damage in findings}
        new = Findings()
        for damage in findings:
            if _sign(damage) not in told:
                new.add(damage.kind, damage.row, damage.note)
        return new


def _sign(damage: Damage) -> tuple[str, int | None, str]:
    counts = damage.row is not None or damage.kind in _COUNTING
    return damage.kind, damage.row, "" if counts else damage.note
