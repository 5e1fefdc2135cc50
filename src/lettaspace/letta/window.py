"""The window as conversation.json lists it, which is the truth about it."""

from array import array
from collections.abc import Sequence

from lettaspace.letta.damage import NO_WINDOW, WINDOW_DIFFERS, WINDOW_ORDER
from lettaspace.letta.plan import NOBODY, OWN_TIME, Plan, Status, group


def follow(plan: Plan, listed: Sequence[str]) -> None:
    """Makes a plan's window the one that conversation.json lists, by message ids."""
    _Window(plan).follow(listed)


class _Window:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def follow(self, listed: Sequence[str]) -> None:
        plan = self.plan
        hashes = [hash(message_id) for message_id in listed]
        ids = plan.scan.ids
        if len(hashes) != len(plan.window) or any(
            ids[entry] != wanted for entry, wanted in zip(plan.window, hashes, strict=True)
        ):
            window = self.resolve(hashes)
            if not window:
                # All of them without a row: hiding the whole history would follow from it.
                if plan.window:
                    plan.findings.add(NO_WINDOW)
            elif window != list(plan.window):
                self.adopt(window)
        self.order()

    def resolve(self, hashes: Sequence[int]) -> list[int]:
        """The messages that ids name. Where an id names several, the last as many as it
        stands in the list, in order."""
        wanted: dict[int, list[int]] = {}
        for value in hashes:
            wanted.setdefault(value, [])
        for entry, value in enumerate(self.plan.scan.ids):
            if value in wanted and self.plan.status[entry] != Status.NONE:
                wanted[value].append(entry)
        left: dict[int, int] = {}
        for value in hashes:
            left[value] = left.get(value, 0) + 1
        window: dict[int, None] = {}
        for value in hashes:
            found = wanted[value]
            if found:
                window[found[-min(left[value], len(found))]] = None
            left[value] -= 1
        return list(window)

    def adopt(self, window: list[int]) -> None:
        plan = self.plan
        plan.findings.add(WINDOW_DIFFERS, None, f"{len(plan.window)} rows, {len(window)} listed")
        inside = set(window)
        for entry in plan.window:
            if entry not in inside:
                plan.status[entry] = Status.COMPACTED
                plan.updated[entry] = OWN_TIME
        for entry in window:
            if plan.status[entry] != Status.ACTIVE:
                plan.status[entry] = Status.ACTIVE
                plan.covered_by[entry] = NOBODY
                plan.updated[entry] = OWN_TIME
        plan.window = array("i", window)

    def order(self) -> None:
        """Gives the window new seqs if the seqs do not say its order."""
        plan = self.plan
        if self.in_order():
            return
        for entry in plan.window:
            plan.top += 1
            plan.seqs[entry] = plan.top
            plan.updated[entry] = OWN_TIME
        if not self.in_order():
            # A summary that is not first: readers sort it where what it covers stood.
            plan.findings.add(WINDOW_ORDER)

    def in_order(self) -> bool:
        seqs, places = self.plan.seqs, self.places()
        last_seq = last_place = 0
        for entry in self.plan.window:
            seq = seqs[entry]
            place = places.get(entry, seq)
            if seq <= last_seq or place <= last_place:
                return False
            last_seq, last_place = seq, place
        return True

    def places(self) -> dict[int, int]:
        """Where summaries stand for a reader: with the earliest of what they cover."""
        plan = self.plan
        groups = group(plan.covered_by, plan.seqs)
        places: dict[int, int] = {}
        for summary in sorted(groups):
            earliest = min(places.get(entry, plan.seqs[entry]) for entry in groups[summary])
            places[summary] = min(earliest, plan.seqs[summary])
        return places
