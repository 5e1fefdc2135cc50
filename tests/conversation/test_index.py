"""The message index against the contract, told as plainly as possible over a list of records."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lettaspace.conversation.index import MessageIndex
from lettaspace.conversation.space import Space
from lettaspace.space import schema
from lettaspace.space.projection import rebuild
from tests.conversation.talk import Talk

NAMES = "abcdefgh"
RKEYS = {name: f"3mmmmmmmmm{name}22" for name in NAMES}


def window(model):
    """Active, listed by nobody; a summary where the earliest of what it covers stands."""
    listed = {
        covered for rkey, each in model.items() for covered in each["covers"] if covered != rkey
    }

    def place(rkey, above=()):
        each = model[rkey]
        inner = [
            place(covered, (*above, rkey))
            for covered in each["covers"]
            if covered in model and covered != rkey and covered not in above
        ]
        return min([each["seq"], *inner])

    inside = [rkey for rkey, each in model.items() if each["active"] and rkey not in listed]
    return sorted(inside, key=lambda rkey: (place(rkey), rkey))


def circular(model):
    """Whether the lists of summaries go in a circle, which only a broken writer makes."""

    def reaches(start, rkey, seen):
        return any(
            covered == start or (covered not in seen and reaches(start, covered, seen | {covered}))
            for covered in model.get(rkey, {"covers": ()})["covers"]
            if covered != rkey
        )

    return any(reaches(rkey, rkey, frozenset()) for rkey in model)


messages = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "seq": st.integers(1, 9),
        "active": st.booleans(),
        "covers": st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
    }
)
steps = st.lists(st.one_of(messages, st.sampled_from(NAMES)), max_size=16)


def rows(space):
    with space.database.read() as connection:
        return [
            sorted(map(tuple, connection.execute(table.select()).all()), key=repr)
            for table in (schema.message_index, schema.message_covers)
        ]


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps)
def test_any_history_of_records_gives_the_window_of_the_contract(tmp_path_factory, steps):
    with Space.open(tmp_path_factory.mktemp("index")) as space:
        talk = Talk(space)
        talk.tids.update(RKEYS)
        model = {}
        for step in steps:
            if isinstance(step, str):
                if RKEYS[step] in model:
                    talk.delete(step)
                    del model[RKEYS[step]]
                continue
            rkey = RKEYS[step["name"]]
            fields = {} if step["active"] else {"status": "compacted"}
            if step["covers"]:
                fields["covers"] = step["covers"]
            if rkey in model:
                talk.rewrite(step["name"], step["seq"], **fields)
            else:
                talk.add(step["name"], step["seq"], rkey=rkey, **fields)
            model[rkey] = {**step, "covers": [RKEYS[name] for name in step["covers"]]}

        shown = [message.rkey for message in space.window(talk.uri).messages]
        whole = [message.rkey for message in space.transcript(talk.uri)]
        assert sorted(whole) == sorted(model)
        if circular(model):
            assert sorted(shown) == sorted(window(model))
            return
        assert shown == window(model)
        # A message stands before the summary that lists it; of several, before the one with
        # the smallest TID.
        for covered in model:
            listing = [rkey for rkey, each in model.items() if covered in each["covers"]]
            if holders := sorted(set(listing) - {covered}):
                assert whole.index(covered) < whole.index(holders[0])
        # However it came about, the index is what the records alone would give.
        kept = rows(space)
        with space.database.write() as connection:
            rebuild(connection, MessageIndex())
        assert rows(space) == kept
