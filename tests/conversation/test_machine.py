"""The whole contract against a model of it in plain lists, by random histories.

The model knows nothing of seqs, places or marks: a conversation is a list of entries, a
summary holds the entries it stands for. What the store shows must be what the lists say,
after every step, whatever came before.
"""

import itertools
import shutil
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lettaspace.conversation.space import Space
from lettaspace.errors import Conflict, NotFound
from tests.conformance.kit import Talk, result, says, user, word, words

CALLS = ("c1", "c2")
"""So few that ids come again."""
MAX_TALKS = 3
MAX_COVERED = 4
"""So small that summaries chain."""


@dataclass(eq=False)
class Entry:
    word: str
    role: str
    calls: tuple[str, ...] = ()
    answers: str | None = None
    covers: "list[Entry] | None" = None
    placeholder: bool = False
    known: bool = True

    def copy(self):
        return Entry(
            self.word, self.role, self.calls, self.answers, None, self.placeholder, self.known
        )

    def payload(self):
        if self.role == "assistant":
            return says(self.word, *self.calls)
        return user(self.word) if self.role == "user" else result(self.word, self.answers)


@dataclass
class Model:
    """What the contract says of one conversation."""

    active: list[Entry] = field(default_factory=list)
    keys: dict = field(default_factory=dict)
    unfinished: bool = False
    """A compaction was cut off, so the marks and seqs may not tell the window yet."""

    def everything(self):
        def expand(entry):
            for each in entry.covers or ():
                yield from expand(each)
            yield entry

        return [each for entry in self.active for each in expand(entry)]

    def shown(self):
        """The window, and what is left out of it."""
        inside, outside, called = [], [], set()
        for entry in self.active:
            called.update(entry.calls)
            orphan = entry.role == "toolResult" and entry.answers not in called
            (inside if entry.known and not orphan else outside).append(entry)
        return inside, outside

    def pairs(self):
        """Every call of the window as [place, id, places of its results]."""
        found = []
        for at, entry in enumerate(self.active):
            if entry.answers is not None:
                same = [each for each in found if each[1] == entry.answers]
                free = [each for each in same if not each[2]] or same
                if free:
                    free[-1][2].append(at)
            found += [[at, call, []] for call in dict.fromkeys(entry.calls)]
        return found

    def pending(self):
        return [(at, call) for at, call, results in self.pairs() if not results]

    def append(self, entry, newest):
        """`newest` picks one of several placeholders."""
        if entry.answers is not None and entry.answers not in [call for _, call in self.pending()]:
            settled = [
                each
                for each in self.everything()
                if each.placeholder and each.answers == entry.answers
            ]
            if settled:
                place = newest(settled)
                place.word, place.placeholder = entry.word, False
                return
        self.active.append(entry)

    def settle(self, ids=None):
        pending = self.pending()
        for at, call in reversed(pending):
            if ids is not None and call not in ids:
                continue
            owner = self.active[at]
            later = owner.calls[owner.calls.index(call) + 1 :]
            place = at + 1
            while place < len(self.active):
                behind = self.active[place]
                if behind.answers is None or (behind.placeholder and behind.answers in later):
                    break
                place += 1
            self.active.insert(
                place, Entry(f"!{call}", "toolResult", answers=call, placeholder=True)
            )

    def boundary(self, asked):
        pairs = self.pairs()
        for count in range(min(asked, len(self.active)), -1, -1):
            if all(at >= count or (results and results[-1] < count) for at, _, results in pairs):
                return count
        raise AssertionError

    def compact(self, asked, name):
        count = self.boundary(asked)
        covered = [entry for entry in self.active[:count] if entry.known]
        if not covered:
            return None
        first = self.active.index(covered[0])
        rest = [entry for entry in self.active[first:] if entry not in covered]
        while True:
            some, left = covered[:MAX_COVERED], covered[MAX_COVERED:]
            summary = Entry(name, "user", covers=some)
            if not left:
                break
            covered = [summary, *left]
        self.active = [*self.active[:first], summary, *rest]
        return count

    def fork(self, at):
        everything = self.everything()
        entry = everything[at]
        if entry in self.active:
            taken = self.active[: self.active.index(entry) + 1]
        elif entry.covers is not None:
            taken = [entry]
        else:
            taken = [each for each in everything[: at + 1] if each.covers is None]
        made = Model([each.copy() for each in taken])
        made.settle()
        return made


class Machine(RuleBasedStateMachine):
    template = home = None

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("lettaspace.conversation.compaction.MAX_COVERED", MAX_COVERED)
        self.where = next(self.home)
        shutil.copytree(self.template, self.where)
        self.space = Space.open(self.where)
        (info,) = self.space.conversations()
        self.talks = [(Talk(self.space.conversation(info.uri)), Model())]
        self.numbers = itertools.count(1)

    @initialize(writes=st.sampled_from([3, 4, 7, 200]))
    def size_of_batches(self, writes):
        for module in ("compaction", "settling"):
            self.patch.setattr(f"lettaspace.conversation.{module}.MAX_WRITES", writes)

    def new(self, prefix):
        return f"{prefix}{next(self.numbers)}"

    def one(self, data):
        return data.draw(st.sampled_from(self.talks), "conversation")

    def newest(self, talk):
        """Of several placeholders the one with the highest seq."""
        seqs = [each.seq for each in talk.handle.transcript()]

        def pick(entries):
            everything = next(model for each, model in self.talks if each is talk).everything()
            return max(entries, key=lambda entry: seqs[everything.index(entry)])

        return pick

    def draw_entry(self, data):
        role = data.draw(st.sampled_from(["user", "assistant", "toolResult"]), "role")
        if role == "assistant":
            calls = data.draw(st.lists(st.sampled_from(CALLS), max_size=2, unique=True), "calls")
            return Entry(self.new("a"), role, tuple(calls))
        if role == "toolResult":
            return Entry(self.new("r"), role, answers=data.draw(st.sampled_from(CALLS), "call"))
        return Entry(self.new("u"), role)

    @rule(data=st.data())
    def append(self, data):
        talk, model = self.one(data)
        entry = self.draw_entry(data)
        pick = self.newest(talk)
        talk.handle.append(entry.payload())
        model.append(entry, pick)

    @rule(data=st.data(), count=st.integers(2, 5))
    def append_some(self, data, count):
        talk, model = self.one(data)
        for _ in range(count):
            entry = Entry(self.new("u"), "user")
            talk.handle.append(entry.payload())
            model.append(entry, None)

    @rule(data=st.data())
    def append_a_call_s_result(self, data):
        talk, model = self.one(data)
        pending = model.pending()
        if pending:
            entry = Entry(self.new("r"), "toolResult", answers=pending[-1][1])
            talk.handle.append(entry.payload())
            model.append(entry, None)

    @rule(data=st.data(), key=st.sampled_from(["k1", "k2"]))
    def append_with_a_key(self, data, key):
        talk, model = self.one(data)
        entry = self.draw_entry(data)
        if key in model.keys:
            known = model.keys[key]
            if known is not None and data.draw(st.booleans(), "the same"):
                rkey, payload = known
                assert talk.handle.append(payload, key=key).rkey == rkey
                return
            with pytest.raises(Conflict):
                talk.handle.append(entry.payload(), key=key)
            return
        pick = self.newest(talk)
        payload = entry.payload()
        model.keys[key] = (talk.handle.append(payload, key=key).rkey, payload)
        model.append(entry, pick)

    @rule(data=st.data())
    def append_of_an_unknown_format(self, data):
        talk, model = self.one(data)
        name = self.new("x")
        talk.unknown(name)
        model.active.append(Entry(f"?{name}", "observer", known=False))

    @rule(data=st.data(), right=st.booleans())
    def rewrite(self, data, right):
        talk, model = self.one(data)
        entries = model.everything()
        at = [n for n, each in enumerate(entries) if each.known and not each.placeholder]
        if not at:
            return
        number = data.draw(st.sampled_from(at), "message")
        entry = entries[number]
        message = list(talk.handle.transcript())[number]
        new = Entry(self.new("w"), entry.role, entry.calls, entry.answers)
        if entry.role == "assistant" and data.draw(st.booleans(), "other calls"):
            new.calls = data.draw(st.sampled_from([(), ("c1",), ("c2", "c1")]), "calls")
        if not right:
            other = talk.space.repo.get("xyz.quasigod.lab.letta.conversation", talk.handle.rkey)
            with pytest.raises(Conflict):
                talk.handle.rewrite(message.rkey, new.payload(), expected=other.cid)
            return
        talk.handle.rewrite(message.rkey, new.payload(), expected=message.cid)
        entry.word, entry.calls = new.word, new.calls

    @rule(data=st.data())
    def settle(self, data):
        talk, model = self.one(data)
        settled = talk.handle.settle()
        assert sorted(words(settled)) == sorted(f"!{call}" for _, call in model.pending())
        model.settle()
        assert talk.handle.settle() == []

    @rule(data=st.data(), call=st.sampled_from(CALLS))
    def settle_one(self, data, call):
        talk, model = self.one(data)
        if not any(call in entry.calls for entry in model.active):
            with pytest.raises(NotFound):
                talk.handle.settle([call])
            return
        talk.handle.settle([call])
        model.settle([call])

    @rule(data=st.data(), asked=st.integers(0, 25))
    def compact(self, data, asked):
        talk, model = self.one(data)
        name = self.new("S")
        done = talk.compact(asked, name)
        assert (done and done.boundary) == model.compact(asked, name)
        if done is not None:
            model.unfinished = False
            assert word(done.summary) == name

    @rule(data=st.data(), asked=st.integers(1, 25))
    def compact_cut_off(self, data, asked):
        """The process ends after the first batch, and whatever comes next comes next."""
        talk, model = self.one(data)
        name = self.new("S")
        with self.patch.context() as patch:
            patch.setattr("lettaspace.conversation.compaction.repair", lambda *_: 0)
            done = talk.compact(asked, name)
        assert (done and done.boundary) == model.compact(asked, name)
        if done is not None:
            model.unfinished = True

    @rule(data=st.data())
    def repair(self, data):
        talk, model = self.one(data)
        talk.handle.repair()
        model.unfinished = False
        assert talk.handle.repair() == 0

    @precondition(lambda self: len(self.talks) < MAX_TALKS)
    @rule(data=st.data())
    def fork(self, data):
        talk, model = self.one(data)
        if not model.active:
            return
        everything = model.everything()
        at = data.draw(st.integers(0, len(everything) - 1), "at")
        message = list(talk.handle.transcript())[at]
        made = Talk(talk.handle.fork(message.rkey))
        self.talks.append((made, model.fork(at)))

    @rule()
    def reopen(self):
        self.space.close()
        self.space = Space.open(self.where)
        self.talks = [(talk.seen_by(self.space), model) for talk, model in self.talks]

    @invariant()
    def what_is_shown_is_what_the_model_says(self):
        for talk, model in self.talks:
            assert words(talk.space.active(talk.handle.uri)) == [e.word for e in model.active]
            window = talk.handle.window()
            inside, outside = model.shown()
            assert words(window.messages) == [entry.word for entry in inside]
            assert words(window.left_out) == [entry.word for entry in outside]
            assert talk.transcript == [entry.word for entry in model.everything()]
            assert talk.handle.pending() == [call for _, call in model.pending()]
            records = talk.records()
            seqs = [each.value["seq"] for each in records]
            assert len(set(seqs)) == len(seqs)
            if not model.unfinished:
                assert talk.plain() == [e.rkey for e in talk.space.active(talk.handle.uri)]

    def teardown(self):
        try:
            for talk, _ in self.talks:
                problems = [each for each in talk.space.verify() if each.kind != "orphan-result"]
                assert problems == []
                talk.handle.repair()
                window = talk.space.active(talk.handle.uri)
                assert talk.plain() == [each.rkey for each in window]
        finally:
            self.patch.undo()
            self.space.close()
            shutil.rmtree(self.where)


def test_the_contract_against_a_model(tmp_path):
    with Space.open(tmp_path / "template") as space:
        Talk.new(space)

    class Here(Machine):
        template = tmp_path / "template"
        home = (tmp_path / f"home{number}" for number in itertools.count())

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
