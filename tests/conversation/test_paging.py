"""Pages against the whole: any of them, in either direction, of whatever is stored."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation import landmarks
from lettaspace.conversation.paging import After, At, Before, First, From, Last, page
from lettaspace.conversation.reach import REACH
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
from lettaspace.errors import NotFound
from lettaspace.space.writes import Create
from tests.conversation.talk import Talk, call

NAMES = "abcdefghij"
ids = st.sampled_from(["c1", "c2", "c3|x"])

messages = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 9),
        "active": st.booleans(),
        "covers": st.one_of(
            st.just([]),
            st.just([]),
            st.lists(st.sampled_from(NAMES + "zz"), max_size=4),
        ),
        "role": st.sampled_from(["user", "assistant", "toolResult"]),
        "call": ids,
    }
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with Space.open(tmp_path_factory.mktemp("paging") / "home") as space:
        yield space


counter = itertools.count()


def number(value, alphabet="234567abcdefghijklmnopqrstuvwxyz"):
    digits = ""
    for _ in range(5):
        value, digit = divmod(value, 32)
        digits = alphabet[digit] + digits
    return digits


def stored(space, drawn):
    """A conversation of its own with the messages drawn, written in the order drawn."""
    prefix = f"3m{number(next(counter))}2222"
    talk = Talk(space, rkey=f"{prefix}22", recorded=False)
    talk.tids.update({name: f"{prefix}{name}2" for name in NAMES + "z"})
    writes = []
    for name, each in drawn.items():
        fields = {} if each["active"] else {"status": "compacted"}
        role = "user" if each["covers"] else each["role"]
        if each["covers"]:
            fields["covers"] = each["covers"]
        elif role == "assistant":
            fields["content"] = [call(each["call"])]
        elif role == "toolResult":
            fields["toolCallId"] = each["call"]
        value, _ = talk.record(each["seq"], role=role, name=name, **fields)
        writes.append(Create(MESSAGE, talk.tids[name], value))
    if writes:
        space.repo.apply_writes(writes)
    return talk


def in_order(drawn):
    """The transcript told plainly: None where lists go in a circle."""
    parent = {}
    for name in sorted(drawn):
        for covered in drawn[name]["covers"]:
            if covered in drawn and covered != name:
                parent.setdefault(covered, name)

    def top(name, seen=()):
        if name in seen:
            raise RecursionError
        return name if name not in parent else top(parent[name], (*seen, name))

    def place(name, above=()):
        inner = [
            place(each, (*above, name))
            for each in drawn[name]["covers"]
            if each in drawn and each != name and each not in above
        ]
        return min([drawn[name]["seq"], *inner])

    def expanded(name):
        inner = [each for each in dict.fromkeys(drawn[name]["covers"]) if parent.get(each) == name]
        return [*itertools.chain.from_iterable(map(expanded, inner)), name]

    try:
        tops = sorted({top(name) for name in drawn}, key=lambda name: (place(name), name))
    except RecursionError:
        return None
    return list(itertools.chain.from_iterable(map(expanded, tops)))


def shown(page):
    return [(message.rkey, message.flags) for message in page.messages]


def check(ask, whole, limit):
    """All pages that can be asked for, against the whole in order."""
    rkeys = [rkey for rkey, _ in whole]

    def sound(page):
        start = rkeys.index(page.messages[0].rkey)
        end = start + len(page.messages)
        assert shown(page) == whole[start:end]
        assert page.before == (rkeys[start] if start else None)
        assert page.after == (rkeys[end - 1] if end < len(whole) else None)
        return start, end

    def walk(anchor, further, left):
        found = []
        while True:
            page = ask(anchor, limit)
            if not whole:
                assert shown(page) == []
                assert page.before is page.after is None
                return
            sound(page)
            found.append(shown(page))
            if left(page) is None:
                break
            anchor = further(left(page))
        pages = found if further is After else reversed(found)
        assert list(itertools.chain.from_iterable(pages)) == whole

    walk(First(), After, lambda page: page.after)
    walk(Last(), Before, lambda page: page.before)
    for at, rkey in enumerate(rkeys):
        start, end = sound(ask(From(rkey), limit))
        assert start == at
        assert end >= min(at + limit, len(whole))
        start, end = sound(ask(At(rkey), limit))
        assert start <= at < end
        assert end - start >= min(limit, len(whole))
        assert start <= max(0, at - limit // 2)
        if at:
            assert sound(ask(Before(rkey), limit))[1] == at
        if at + 1 < len(rkeys):
            assert sound(ask(After(rkey), limit))[0] == at + 1
    if rkeys:
        assert shown(ask(Before(rkeys[0]), limit)) == []
        assert shown(ask(After(rkeys[-1]), limit)) == []


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    drawn=st.dictionaries(st.sampled_from(NAMES), messages, max_size=10), limit=st.integers(1, 4)
)
def test_pages_are_pieces_of_the_whole(shared, drawn, limit):
    talk = stored(shared, drawn)
    whole = list(shared.transcript(talk.uri))
    names = talk.names(whole)
    expected = in_order(drawn)
    assert sorted(names) == sorted(drawn)
    assert expected is None or names == expected

    def ask(view):
        return lambda anchor, limit: shared.page(talk.uri, view=view, anchor=anchor, limit=limit)

    check(ask("transcript"), [(each.rkey, each.flags) for each in whole], limit)
    window = [(each.rkey, each.flags) for each in shared.active(talk.uri)]
    check(ask("window"), window, limit)
    flags = {each.rkey: each.flags for each in whole}
    for name, each in drawn.items():
        listed = [other for other in dict.fromkeys(each["covers"]) if other in drawn]
        wanted = [talk.tids[other] for other in listed if other != name]

        def covered(anchor, limit, summary=talk.tids[name]):
            page = shared.covered(talk.uri, summary, anchor=anchor, limit=limit)
            assert all(
                message.flags == flags[message.rkey]
                for message in page.messages
                if "orphan-result" in message.flags
            )
            return page

        found = covered(First(), 20)
        assert [message.rkey for message in found.messages] == wanted


def rkeys(page):
    return [message.rkey for message in page.messages]


class Script:
    """A conversation written as words: `u` a user's message, `a:c1` a call, `r:c1` its result."""

    def __init__(self, talk, words):
        self.talk = talk
        self.space = talk.space
        self.words = words.split()
        self.uri = talk.uri
        for seq, word in enumerate(self.words, 1):
            kind, _, call_id = word.partition(":")
            if kind == "a":
                content = [call(each) for each in call_id.split(",") if each]
                talk.add(seq, seq, role="assistant", content=content or None)
            elif kind == "r":
                talk.add(seq, seq, role="toolResult", toolCallId=call_id)
            else:
                talk.add(seq, seq)

    def page(self, anchor, limit, view="window"):
        page = self.space.page(self.uri, view=view, anchor=anchor, limit=limit)
        return [self.words[message.seq - 1] for message in page.messages]

    def tid(self, place):
        return self.talk.tids[place]


def test_a_page_does_not_end_between_a_call_and_its_results(talk):
    script = Script(talk, "u a:c1,c2 r:c1 r:c2 u a:c3 u r:c3 u")
    assert script.page(First(), 2) == ["u", "a:c1,c2", "r:c1", "r:c2"]
    assert script.page(First(), 3) == ["u", "a:c1,c2", "r:c1", "r:c2"]
    assert script.page(After(script.tid(4)), 2) == ["u", "a:c3", "u", "r:c3"]
    assert script.page(From(script.tid(5)), 1) == ["u"]


def test_a_page_does_not_begin_between_a_call_and_its_results(talk):
    script = Script(talk, "u a:c1,c2 r:c1 r:c2 u a:c3 u r:c3 u")
    assert script.page(Last(), 2) == ["a:c3", "u", "r:c3", "u"]
    assert script.page(Before(script.tid(5)), 1) == ["a:c1,c2", "r:c1", "r:c2"]
    assert script.page(At(script.tid(4)), 2) == ["a:c1,c2", "r:c1", "r:c2"]
    assert script.page(At(script.tid(2)), 1) == ["a:c1,c2", "r:c1", "r:c2"]


def test_calls_are_kept_with_what_they_overlap(talk):
    script = Script(talk, "u a:c1 a:c2 r:c1 a:c3 r:c2 r:c3 u")
    whole = script.words[1:7]
    assert script.page(First(), 2) == ["u", *whole]
    assert script.page(Last(), 2) == [*whole, "u"]


def test_ids_that_come_again_do_not_make_pages_longer(talk):
    script = Script(talk, "a:c r:c u a:c r:c u a:c u a:c r:c u")
    assert script.page(First(), 1) == ["a:c", "r:c"]
    assert script.page(After(script.tid(2)), 2) == ["u", "a:c", "r:c"]
    # The third call has no result: the next one has a call of its own.
    assert script.page(After(script.tid(6)), 1) == ["a:c"]
    assert script.page(Last(), 2) == ["a:c", "r:c", "u"]


def test_a_second_result_that_follows_stays_with_its_call(talk):
    script = Script(talk, "u a:c r:c r:c u")
    assert script.page(First(), 3) == ["u", "a:c", "r:c", "r:c"]
    assert script.page(Last(), 2) == ["a:c", "r:c", "r:c", "u"]


def test_how_far_a_page_reaches(talk):
    between = " ".join(["u"] * (REACH - 1))
    script = Script(talk, f"a:c1 {between} r:c1 u")
    assert len(script.page(First(), 1)) == REACH + 1
    assert len(script.page(Before(script.tid(REACH + 2)), 1)) == REACH + 1
    talk.add("one more", REACH + 3, role="toolResult", toolCallId="c2")
    script.words.append("r:c2")
    assert script.page(Last(), 1) == ["r:c2"]


def flags(page):
    return [message.flags for message in page.messages]


def test_a_result_whose_call_is_on_an_earlier_page_is_no_orphan(talk, space):
    script = Script(talk, "a:c1 r:c1 u r:c1 r:c9")
    page = space.page(talk.uri, view="window", anchor=From(script.tid(4)), limit=5)
    assert flags(page) == [(), ("orphan-result",)]
    page = space.page(talk.uri, view="window", anchor=After(script.tid(1)), limit=1)
    assert flags(page) == [()]


@pytest.mark.parametrize(("between", "orphan"), [(REACH - 1, True), (REACH, False)])
def test_where_the_call_may_stand_further_back_nothing_is_flagged(talk, space, between, orphan):
    script = Script(talk, " ".join(["u"] * between + ["r:c1"]))
    page = space.page(talk.uri, view="window", anchor=From(script.tid(between + 1)), limit=5)
    assert flags(page) == [("orphan-result",) if orphan else ()]


def test_a_call_that_stands_before_what_a_summary_covers(talk, space):
    Script(talk, "a:c1 r:c1 r:c9 u")
    summary = talk.add("S", 5, covers=[2, 3])
    page = space.covered(talk.uri, summary, anchor=First(), limit=5)
    assert talk.names(page.messages) == [2, 3]
    assert flags(page) == [(), ("orphan-result",)]


def test_what_a_summary_covers_in_pages(talk, space):
    Script(talk, "u u u u u u")
    inner = talk.add("A", 7, covers=[1, 2])
    outer = talk.add("B", 8, covers=["A", 3, 4, "3zzzzzzzzzzzz", 5])
    pages = {
        First(): (["A", 3], None, 3),
        After(talk.tids[3]): ([4, 5], 4, None),
        Before(talk.tids[4]): (["A", 3], None, 3),
        Last(): ([4, 5], 4, None),
        At(talk.tids[4]): ([3, 4], 3, 4),
    }
    for anchor, (names, before, after) in pages.items():
        page = space.covered(talk.uri, outer, anchor=anchor, limit=2)
        assert talk.names(page.messages) == names
        assert (page.before, page.after) == (talk.tids.get(before), talk.tids.get(after))
    assert rkeys(space.covered(talk.uri, inner, anchor=First(), limit=9)) == [
        talk.tids[1],
        talk.tids[2],
    ]
    assert space.covered(talk.uri, talk.tids[6], anchor=First(), limit=9).messages == []
    with pytest.raises(NotFound):
        space.covered(talk.uri, outer, anchor=At(talk.tids[1]), limit=2)


def test_anchors_that_are_not_there(talk, space):
    script = Script(talk, "u u u u")
    talk.add("S", 5, covers=[1, 2])
    for view, anchors in {
        "window": (At("3zzzzzzzzzzzz"), At(script.tid(1)), From(script.tid(1))),
        "transcript": (After("3zzzzzzzzzzzz"), Before("jars")),
    }.items():
        for anchor in anchors:
            with pytest.raises(NotFound):
                space.page(talk.uri, view=view, anchor=anchor, limit=2)
    # What was compacted while somebody turned the pages.
    page = space.page(talk.uri, view="window", anchor=After(script.tid(1)), limit=2)
    assert talk.names(page.messages) == [3, 4]
    nobody = space.page("at://did:web:x/y/z", view="window", anchor=Last(), limit=2)
    assert (nobody.messages, nobody.before, nobody.after) == ([], None, None)
    assert space.compactions("at://did:web:x/y/z") == []


def test_landmarks(talk, space):
    Script(talk, "u u u u u u")
    talk.add("A", 7, covers=[1, 2])
    talk.add("B", 8, covers=["A", 3])
    talk.add("C", 9, covers=[])
    a, b, c = space.compactions(talk.uri)
    assert (a.rkey, a.seq, a.place, a.covers) == (talk.tids["A"], 7, 1, 2)
    assert (a.first, a.last, a.covered_by) == (talk.tids[1], talk.tids[2], talk.tids["B"])
    assert (b.rkey, b.place, b.first, b.last) == (
        talk.tids["B"],
        1,
        talk.tids["A"],
        talk.tids[3],
    )
    assert (c.covers, c.first, c.last, c.place) == (0, None, None, 9)
    assert space.covering(talk.uri, talk.tids[1]) == [a, b]
    assert space.covering(talk.uri, talk.tids["A"]) == [b]
    assert space.covering(talk.uri, talk.tids[4]) == []
    assert space.covering(talk.uri, "3zzzzzzzzzzzz") == []


def test_covering_ends_in_a_circle(talk, space):
    talk.add("A", 1, covers=["3zzzzzzzzzzzz"])
    talk.add("B", 2, covers=["A"])
    talk.rewrite("A", 1, covers=["B"])
    assert [each.rkey for each in space.covering(talk.uri, talk.tids["A"])] == [
        talk.tids["B"],
        talk.tids["A"],
    ]


def test_ticks_divide_a_conversation(talk, space):
    Script(talk, " ".join(["u"] * 9))
    talk.add("S", 10, covers=[1, 2, 3, 4])

    def ticks(view, count):
        found = space.ticks(talk.uri, view=view, count=count)
        assert all(each.rkey == talk.tids[each.seq] for each in found)
        return [each.seq for each in found]

    assert ticks("transcript", 3) == [1, 5, 9]
    assert ticks("transcript", 2) == [1, 9]
    assert ticks("transcript", 1) == [1]
    assert ticks("transcript", 0) == []
    assert ticks("transcript", 99) == list(range(1, 10))
    assert ticks("window", 3) == [5, 7, 9]
    assert space.ticks("at://did:web:x/y/z", view="window", count=3) == []


class Steps:
    """Counts what SQLite does, in tens of steps of its virtual machine."""

    def __init__(self, connection):
        self.raw = connection.connection.driver_connection
        self.count = 0

    def __enter__(self):
        self.raw.set_progress_handler(self.more, 10)
        return self

    def __exit__(self, *_):
        self.raw.set_progress_handler(None, 0)

    def more(self):
        self.count += 1
        return 0


def long_talk(space, length, every=None):
    """With `every`, each that many messages are summarised, with the summary before."""
    talk = Talk(space, rkey=space.repo.clock.mint())
    writes, covered, seq = [], [], 0
    for _ in range(length):
        seq += 1
        talk.tids[seq] = tid = space.repo.clock.mint()
        old = every is not None and seq < length
        fields = {"status": "compacted"} if old else {}
        writes.append(Create(MESSAGE, tid, talk.record(seq, **fields)[0]))
        covered.append(seq)
        if every and len(covered) >= every and seq < length:
            seq += 1
            talk.tids[seq] = tid = space.repo.clock.mint()
            writes.append(Create(MESSAGE, tid, talk.record(seq, covers=covered)[0]))
            covered = [seq]
        if len(writes) > 190:
            space.repo.apply_writes(writes)
            writes = []
    if writes:
        space.repo.apply_writes(writes)
    return talk


def steps(space, talk, view, anchor, limit=20):
    with space.database.read() as connection, Steps(connection) as counted:
        page(connection, talk.uri, space.repo.get_blob, view, anchor, limit)
    return counted.count


@pytest.mark.parametrize("view", ["window", "transcript"])
def test_o47_no_page_of_a_long_conversation_costs_more(shared, view):
    short, long = long_talk(shared, 100), long_talk(shared, 5000)
    allowed = steps(shared, short, view, First()) * 1.2
    assert steps(shared, long, view, First()) <= allowed
    assert steps(shared, long, view, Last()) <= allowed
    # In the middle both sides are looked at.
    for anchor in (
        At(long.tids[2500]),
        From(long.tids[4000]),
        Before(long.tids[4900]),
        After(long.tids[1000]),
    ):
        assert steps(shared, long, view, anchor) <= allowed * 2
    window = shared.window(long.uri)
    assert len(window.messages) == 5000
    assert window.left_out == []


def test_o47_no_page_of_a_compacted_conversation_costs_more(shared):
    short = long_talk(shared, 100, every=20)
    long = long_talk(shared, 4000, every=800)
    allowed = steps(shared, short, "transcript", First()) * 1.5
    seqs = [seq for seq in long.tids if isinstance(seq, int)]
    assert steps(shared, long, "window", First()) <= allowed
    assert steps(shared, long, "window", Last()) <= allowed
    for anchor in (First(), Last(), *(At(long.tids[seq]) for seq in seqs[::400])):
        assert steps(shared, long, "transcript", anchor) <= allowed * 2
    assert [each.covers for each in shared.compactions(long.uri)] == [800, 800, 800, 800]


def test_o47_landmarks_of_a_long_conversation(shared):
    talk = long_talk(shared, 3000, every=1000)
    with shared.database.read() as connection:
        for ask in (
            lambda: landmarks.compactions(connection, talk.uri),
            lambda: landmarks.covering(connection, talk.uri, talk.tids[1]),
            lambda: landmarks.ticks(connection, talk.uri, window=False, count=14),
        ):
            with Steps(connection) as counted:
                assert ask()
            assert counted.count < 200
