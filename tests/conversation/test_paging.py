"""Pages against the whole: any of them, in either direction, of whatever is stored."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.paging import After, At, Before, First, From, Last
from lettaspace.conversation.records import MESSAGE
from lettaspace.conversation.space import Space
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
