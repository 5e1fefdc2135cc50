"""What a watcher says: everything once, until it changes."""

from collections.abc import Callable

from lettaspace.letta.damage import Damage, Findings
from lettaspace.letta.report import Report

OnReport = Callable[[Report], None]
OnProblem = Callable[[str], None]


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

    def report(self, report: Report) -> None:
        """An import of some agents and conversations. It is passed on if something was written
        or is found for the first time."""
        report.findings = self._of_agents(report.findings)
        for each in report.conversations:
            each.findings = self._new(each.key, each.findings)
        self._tell(report)

    def _tell(self, report: Report) -> None:
        if self._on_report is not None and (report.written or next(report.lines(), None)):
            self._on_report(report)

    def _of_agents(self, findings: Findings) -> Findings:
        new = Findings()
        for damage in findings:
            one = Findings()
            one.add(damage.kind, damage.row, damage.note)
            # The note begins with the file's name.
            new.extend(self._new(f"agent {damage.note.partition(' ')[0]}", one))
        return new

    def _new(self, key: str, findings: Findings) -> Findings:
        told = self._told.get(key, set())
        self._told[key] = {_sign(damage) for damage in findings}
        new = Findings()
        for damage in findings:
            if _sign(damage) not in told:
                new.add(damage.kind, damage.row, damage.note)
        return new


def _sign(damage: Damage) -> tuple[str, int | None, str]:
    # Notes of what concerns a whole conversation count messages, which become ever more.
    return damage.kind, damage.row, damage.note if damage.row is None and ":" in damage.note else ""
