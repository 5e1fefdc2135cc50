"""The replay of rows: window, order, statuses, identities."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lettaspace.atproto import tid
from lettaspace.letta.plan import OWN_TIME, Plan, Status
from lettaspace.letta.replay import contains, replay
from lettaspace.letta.scan import Entry, scan
from tests.letta.build import at, b1, compaction, jsonl, message, row, rows, text

Json = dict[str, Any]


def plan_of(path: Path, made: list[Json] | bytes, listed: list[str] | None = None) -> Plan:
    data = made if isinstance(made, bytes) else jsonl(made)
    path = path / "messages.jsonl"
    path.write_bytes(data)
    return replay(scan(path, "2222222222222", at(0)), io.BytesIO(data), listed)


def kinds(plan: Plan) -> list[tuple[str, int | None]]:
    return [(d.kind, d.row) for d in [*plan.scan.findings, *plan.findings]]


def talk(count: int) -> list[Json]:
    return rows(message(n, "user" if n % 2 else "assistant", f"m{n}") for n in range(1, count + 1))


def ids(count: int) -> list[str]:
    return [f"ui-msg-{n}" for n in range(1, count + 1)]


def test_rows_become_messages_in_file_order(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, rows(b1()), ids(4))
    assert list(plan.window) == [0, 1, 2, 3]
    assert list(plan.seqs) == [1, 2, 3, 4]
    assert kinds(plan) == []
    assert len({plan.scan.tid(n) for n in range(4)}) == 4
    assert [tid.decode(plan.scan.tid(n))[0] // 1_000_000 for n in range(4)] == [
        tid.decode(plan.scan.tid(0))[0] // 1_000_000 + n for n in range(4)
    ]


def test_a_compaction_covers_a_prefix_and_mints_the_tail_anew(tmp_path: Path) -> None:
    made = talk(6)
    made.append(compaction(message(7, "user", "S"), "e7", "e6", "e3", 6, 5))
    made.append(row(message(8, "user", "next"), "e8", "e7"))
    plan = plan_of(tmp_path, made, ["ui-msg-7", *ids(6)[2:], "ui-msg-8"])
    assert [plan.scan.numbers[n] - 1 for n in plan.window] == [7, 3, 4, 5, 6, 8]
    assert list(plan.seqs) == [1, 2, 8, 9, 10, 11, 7, 12]
    assert list(plan.covers(6)) == [0, 1]
    assert [plan.updated_at(n) for n in range(8)] == [*[at(7)] * 6, None, None]
    assert kinds(plan) == []


def test_a_second_compaction_lists_the_first(tmp_path: Path) -> None:
    made = talk(6)
    made.append(compaction(message(7, "user", "A"), "e7", "e6", "e3", 6, 5))
    made += [row(message(8, "user", "g"), "e8", "e7"), row(message(9, "user", "h"), "e9", "e8")]
    made.append(compaction(message(10, "user", "B"), "e10", "e9", "e8", 7, 3))
    plan = plan_of(tmp_path, made, ["ui-msg-10", "ui-msg-8", "ui-msg-9"])
    assert list(plan.covers(9)) == [6, 2, 3, 4, 5]
    assert list(plan.covers(6)) == [0, 1]
    assert kinds(plan) == []


def test_a_snapshot_replaces_an_unfinished_answer(tmp_path: Path) -> None:
    made = rows(
        [
            message(1, "user", "go"),
            message(2, "assistant", "partial wo", stopReason="error"),
            message(2, "assistant", "something else"),
        ]
    )
    plan = plan_of(tmp_path, made, ids(2))
    assert plan.count() == 2
    assert plan.final == {1: 2}
    assert list(plan.seqs[:2]) == [1, 2]
    assert plan.top == 2


def test_an_answer_that_was_overtaken_is_kept(tmp_path: Path) -> None:
    made = rows(
        [
            message(1, "user", "a"),
            message(3, "user", "b"),
            message(2, "assistant", "answer to a"),
            message(2, "assistant", "answer to b"),
        ]
    )
    plan = plan_of(tmp_path, made, ["ui-msg-1", "ui-msg-3", "ui-msg-2"])
    assert plan.count() == 4
    assert list(plan.window) == [0, 1, 3]
    assert plan.status[2] == Status.COMPACTED
    assert list(plan.covered_by) == [-1] * 4
    assert plan.scan.tid(2) != plan.scan.tid(3)
    assert kinds(plan) == [("sameId", 5)]


def test_equal_rows_are_one_message(tmp_path: Path) -> None:
    made = rows([*b1(), *b1()])
    plan = plan_of(tmp_path, made, ids(4))
    assert plan.count() == 4
    assert kinds(plan) == []


def test_a_counter_that_began_again_names_other_messages(tmp_path: Path) -> None:
    made = rows(
        [
            message(1, "user", "a"),
            message(2, "assistant", "b"),
            message(2, "user", "c", created=at(50)),
            message(3, "assistant", "d", created=at(51)),
        ]
    )
    plan = plan_of(tmp_path, made, ["ui-msg-1", "ui-msg-2", "ui-msg-3"])
    assert plan.count() == 4
    assert list(plan.window) == [0, 2, 3]
    both = plan_of(tmp_path, made, ["ui-msg-1", "ui-msg-2", "ui-msg-2", "ui-msg-3"])
    assert list(both.window) == [0, 1, 2, 3]


def test_the_listed_window_is_the_truth(tmp_path: Path) -> None:
    made = talk(6)
    made.append(compaction(message(7, "user", "S"), "e7", "e6", "e3", 6, 5))
    # One that was covered is listed, one that was kept is not, one has no row.
    plan = plan_of(tmp_path, made, ["ui-msg-7", "ui-msg-2", "ui-msg-3", "ui-msg-5", "ui-msg-99"])
    assert [plan.scan.numbers[n] - 1 for n in plan.window] == [7, 2, 3, 5]
    assert list(plan.covers(6)) == [0]
    assert plan.status[3] == Status.COMPACTED
    assert plan.updated[3] == OWN_TIME
    seqs = [plan.seqs[n] for n in plan.window]
    assert seqs == sorted(seqs)
    assert min(seqs) == 12
    assert ("windowDiffers", None) in kinds(plan)


def test_another_order_gives_new_seqs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, talk(3), ["ui-msg-2", "ui-msg-1", "ui-msg-3"])
    assert list(plan.window) == [1, 0, 2]
    assert list(plan.seqs) == [5, 4, 6]


@pytest.mark.parametrize("listed", [[], None, ["ui-msg-77"]])
def test_without_a_list_the_rows_decide(tmp_path: Path, listed: list[str] | None) -> None:
    plan = plan_of(tmp_path, talk(3), listed)
    assert list(plan.window) == [0, 1, 2]
    assert kinds(plan) == [("noWindow", None)]


def test_a_race_leaves_a_message_to_nobody(tmp_path: Path) -> None:
    made = talk(5)
    # Planned on four messages; the fifth came while the summary was written.
    made.append(compaction(message(6, "user", "S"), "e6", "e5", "e3", 4, 3))
    plan = plan_of(tmp_path, made, ["ui-msg-6", "ui-msg-3", "ui-msg-4"])
    assert list(plan.covers(5)) == [0, 1]
    assert plan.status[4] == Status.COMPACTED
    assert plan.covered_by[4] == -1
    made[-1] = compaction(message(6, "user", "S"), "e6", "e5", None, 4, 1)
    plan = plan_of(tmp_path, made, ["ui-msg-6"])
    assert list(plan.covers(5)) == [0, 1, 2, 3]


def test_unknown_first_kept_row(tmp_path: Path) -> None:
    made = talk(4)
    made.append(compaction(message(5, "user", "S"), "e5", "e4", "gone", 4, 3))
    plan = plan_of(tmp_path, made, ["ui-msg-5", "ui-msg-3", "ui-msg-4"])
    assert list(plan.window) == [4, 2, 3]
    assert kinds(plan) == [("missingParent", 6)]


def test_a_damaged_row_takes_a_seq(tmp_path: Path) -> None:
    data = jsonl(talk(4)).split(b"\n")
    whole = plan_of(tmp_path, b"\n".join(data), ids(4))
    data[2] = data[2][:40]
    plan = plan_of(tmp_path, b"\n".join(data), ids(4))
    assert [plan.seqs[n] for n in plan.window] == [1, 3, 4]
    assert [plan.scan.tid(n) for n in plan.window] == [whole.scan.tid(n) for n in (0, 2, 3)]
    assert plan.scan.kinds[1] == Entry.DAMAGED


def test_messages_of_one_moment_all_get_keys(tmp_path: Path) -> None:
    # So many in one millisecond that their hashes meet.
    made = rows(message(n, "user", "x", created=at(1)) for n in range(1, 4001))
    plan = plan_of(tmp_path, made, ids(4000))
    tids = [plan.scan.tid(n) for n in range(4000)]
    assert len(set(tids)) == 4000
    assert all(tid.decode(each)[0] // 1000 == tid.decode(tids[0])[0] // 1000 for each in tids)
    prefix = plan_of(tmp_path, made[:3001], ids(3000))
    assert [prefix.scan.tid(n) for n in range(3000)] == tids[:3000]


@pytest.mark.parametrize(
    ("later", "earlier", "expected"),
    [
        ([text("ab")], [text("a")], True),
        ([text("ab"), {"type": "x"}], [{"type": "x"}, text("a")], True),
        ([text("b")], [text("a")], False),
        ([text("ab")], [text("a"), {"type": "x"}], False),
        ([text("a")], [], True),
        ("a", "a", True),
        ("ab", "a", False),
    ],
)
def test_contains(later: Any, earlier: Any, expected: bool) -> None:
    assert contains(later, earlier) is expected


# An independent model: plain lists of dicts, one step after the other, nothing shared.


@dataclass
class Model:
    seq: int = 0
    known: list[Json] = field(default_factory=list[Json])
    window: list[Json] = field(default_factory=list[Json])

    def find(self, value: Json) -> Json | None:
        for each in reversed(self.known):
            old, new = each["message"], value
            if (old["id"], old["role"], old["metadata"]["created_at"]) == (
                new["id"],
                new["role"],
                new["metadata"]["created_at"],
            ):
                return each
        return None

    def feed(self, item: Json) -> None:
        if item["type"] == "damage":
            self.seq += 1
            return
        value = item["message"]
        found = self.find(value)
        if item["type"] == "message" and found is not None:
            old = found["message"]
            a, b = old["content"][0]["text"], value["content"][0]["text"]
            if old.get("stopReason") == "error" or b.startswith(a):
                found["message"] = value
                found["rows"].append(item["id"])
                return
        self.seq += 1
        mine = {
            "message": value,
            "seq": self.seq,
            "status": "active",
            "by": None,
            "rows": [item["id"]],
        }
        self.known.append(mine)
        if item["type"] == "message":
            if found is not None and found in self.window:
                self.window[self.window.index(found)] = mine
                found["status"] = "compacted"
            else:
                self.window.append(mine)
            return
        first = item["firstKeptEntryId"]
        cut = len(self.window)
        for place, each in enumerate(self.window):
            if first in each["rows"]:
                cut = place
        covered, kept = self.window[:cut], self.window[cut:]
        for each in covered:
            each.update(status="compacted", by=value["id"])
        for each in kept:
            self.seq += 1
            each["seq"] = self.seq
        self.window = [mine, *kept]

    def outcome(self, listed: list[str]) -> list[Any]:
        # The model's ids are unique among what may be listed, the newest first.
        window: list[Json] = []
        for message_id in listed:
            having = [each for each in self.known if each["message"]["id"] == message_id]
            if having and having[-1] not in window:
                window.append(having[-1])
        for each in self.window:
            if each not in window:
                each["status"] = "compacted"
        for each in window:
            if each["status"] != "active":
                each.update(status="active", by=None)

        def place(each: Json) -> int:
            of = [place(other) for other in self.known if other["by"] == each["message"]["id"]]
            return int(min([each["seq"], *of]))

        for key in (lambda each: each["seq"], place):
            keys = [key(each) for each in window]
            if any(a >= b for a, b in pairwise(keys)):
                for each in window:
                    self.seq += 1
                    each["seq"] = self.seq
                break
        return [
            (each["message"]["content"][0]["text"], each["seq"], each["status"], each["by"])
            for each in self.known
        ]


def random_rows(rng: random.Random, count: int) -> tuple[list[Json], list[str]]:
    model = Model()
    made: list[Json] = []
    parent = None
    for number in range(1, count + 1):
        row_id = f"r{number}"
        kind = rng.random()
        item: Json
        if kind < 0.08:
            item = {"type": "damage"}
        elif kind < 0.2 and len(model.window) > 1:
            cut = rng.randint(1, len(model.window))
            kept = model.window[cut:]
            first = kept[0]["rows"][-1] if kept else None
            item = compaction(
                message(number, "user", f"S{number}"),
                row_id,
                parent,
                first,
                len(model.window),
                1 + len(kept),
            )
        elif kind < 0.35 and model.window and "compaction" not in str(model.window[-1]["message"]):
            old = model.window[-1]["message"]
            new = "more" if rng.random() < 0.5 else old["content"][0]["text"] + "+"
            item = row({**old, "content": [text(new + "!")], "stopReason": "stop"}, row_id, parent)
        else:
            stop = "error" if rng.random() < 0.3 else "stop"
            role = rng.choice(["user", "assistant"])
            value = message(number, role, f"m{number}", created=at(rng.randint(0, 9)))
            if role == "assistant":
                value["stopReason"] = stop
            item = row(value, row_id, parent)
        made.append(item)
        model.feed(item)
        parent = row_id
    listed = [each["message"]["id"] for each in model.window]
    if rng.random() < 0.3:
        rng.shuffle(listed)
        del listed[rng.randint(0, len(listed)) :]
    if rng.random() < 0.3:
        listed.append("ui-msg-none")
    return made, listed


@pytest.mark.parametrize("seed", range(150))
def test_against_a_naive_model(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made, listed = random_rows(rng, rng.randint(1, 40))
    data = b"".join(b"{\n" if item["type"] == "damage" else jsonl([item]) for item in made)
    model = Model()
    for item in made:
        model.feed(item)
    known = {each["message"]["id"] for each in model.known}
    if not any(message_id in known for message_id in listed):
        listed = [each["message"]["id"] for each in model.window]
    if len(set(listed)) != len(listed):
        pytest.skip("the model knows no list with an id twice")
    expected = model.outcome(listed)
    plan = plan_of(tmp_path, data, listed)
    stream = io.BytesIO(data)
    got = []
    for entry in range(len(plan.scan)):
        if plan.status[entry] == Status.NONE:
            continue
        value = plan.scan.reread(stream, plan.final.get(entry, entry))["message"]
        by = plan.covered_by[entry]
        summary = plan.scan.reread(stream, by)["message"]["id"] if by >= 0 else None
        status = "active" if plan.status[entry] == Status.ACTIVE else "compacted"
        got.append((value["content"][0]["text"], plan.seqs[entry], status, summary))
    assert got == expected
