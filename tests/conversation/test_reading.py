"""The window and the transcript, from records of ours and of other writers."""

import pytest

from lettaspace.errors import Damaged
from lettaspace.space.writes import Update
from tests.conversation.talk import TIME, Talk, call, text


def problems(space):
    return [(problem.kind, problem.where) for problem in space.verify()]


def six(talk):
    for seq, name in enumerate("abcdef", 1):
        talk.add(name, seq)


def test_the_window_is_the_active_messages_in_seq_order(talk):
    talk.add("second", 2)
    talk.add("first", 1)
    talk.add("gone", 3, status="compacted")
    talk.add("third", 4, status="active")
    assert talk.window() == ["first", "second", "third"]
    assert talk.transcript() == ["first", "second", "gone", "third"]


@pytest.mark.parametrize("reminted", [True, False], ids=["re-minted tail", "tail left alone"])
@pytest.mark.parametrize("marked", [True, False], ids=["marked", "marks cut off by a crash"])
def test_o08_what_two_compactions_kept_and_covered(talk, space, reminted, marked):
    def compact(summary, covers, kept, seq):
        talk.add(summary, seq, covers=covers)
        if marked:
            for name in covers:
                talk.remark(name, status="compacted", updatedAt=TIME)
        if reminted:
            for place, name in enumerate(kept, seq + 1):
                talk.remark(name, seq=place, updatedAt=TIME)

    six(talk)
    compact("A", "ab", "cdef", 7)
    assert talk.window() == ["A", "c", "d", "e", "f"]
    assert talk.transcript() == ["a", "b", "A", "c", "d", "e", "f"]
    talk.add("g", 12)
    talk.add("h", 13)
    compact("B", ["A", "c", "d", "e", "f"], "gh", 14)
    assert talk.window() == ["B", "g", "h"]
    assert talk.transcript() == ["a", "b", "A", "c", "d", "e", "f", "B", "g", "h"]
    assert problems(space) == []
    statuses = {
        name: m.status for name, m in zip("abAcdefBgh", space.transcript(talk.uri), strict=False)
    }
    assert statuses == dict.fromkeys("abAcdef", "compacted") | dict.fromkeys("Bgh", "active")


def test_records_may_arrive_in_any_order(space, talk):
    # As a sync brings them: newest first, the summary before all that it covers.
    order = ["B", "h", "g", "A", "f", "e", "d", "c", "b", "a"]
    tids = {
        name: f"3mmmmmmmmm2{letter}2"
        for name, letter in zip("abcdefABgh", "abcdefghij", strict=False)
    }
    talk.tids.update(tids)
    seqs = dict(zip("abcdefAghB", range(1, 11), strict=False))
    covers = {"A": "ab", "B": ["A", "c", "d", "e", "f"]}
    for name in order:
        fields = {"covers": covers[name]} if name in covers else {}
        talk.add(name, seqs[name], rkey=tids[name], **fields)
    assert talk.window() == ["B", "g", "h"]
    assert talk.transcript() == ["a", "b", "A", "c", "d", "e", "f", "B", "g", "h"]
    assert problems(space) == []


def test_a_summary_that_loses_its_list_gives_its_messages_back(talk, space):
    six(talk)
    talk.add("A", 7, covers="abc")
    assert talk.window() == ["A", "d", "e", "f"]
    talk.rewrite("A", 7, covers="a")
    assert talk.window() == ["A", "b", "c", "d", "e", "f"]
    talk.delete("A")
    assert talk.window() == ["a", "b", "c", "d", "e", "f"]
    assert problems(space) == []


def test_two_summaries_of_one_message(talk, space):
    six(talk)
    talk.add("A", 7, covers="abc")
    talk.add("B", 8, covers="cd")
    assert talk.window() == ["A", "B", "e", "f"]
    assert talk.transcript() == ["a", "b", "c", "A", "d", "B", "e", "f"]
    talk.delete("A")
    assert talk.window() == ["a", "b", "B", "e", "f"]


def test_lists_that_go_in_a_circle_hide_nothing(talk, space):
    talk.add("a", 1)
    talk.add("A", 2, covers=["a"])
    talk.add("B", 3, covers=["A"])
    talk.rewrite("A", 2, covers=["a", "B"])
    talk.add("own", 4, covers=[])
    talk.rewrite("own", 4, covers=["own"])
    assert talk.window() == ["own"]
    assert sorted(talk.transcript()) == ["A", "B", "a", "own"]


def test_a_listed_message_that_is_absent(talk, space):
    talk.add("a", 1)
    talk.add("A", 2, covers=["a", "3zzzzzzzzzzzz"])
    assert talk.window() == ["A"]
    assert talk.transcript() == ["a", "A"]
    assert [kind for kind, _ in problems(space)] == ["listed-missing"]


def test_o05_a_result_without_a_call(talk, space):
    talk.add("hi", 1)
    stray = talk.add("stray", 2, role="toolResult", toolCallId="call_ZZ")
    talk.add("ok", 3, role="assistant")
    window = space.window(talk.uri)
    assert talk.names(window.messages) == ["hi", "ok"]
    assert [(m.rkey, m.flags) for m in window.left_out] == [(stray, ("orphan-result",))]
    flags = {m.rkey: m.flags for m in space.transcript(talk.uri)}
    assert flags == {
        talk.tids["hi"]: (),
        stray: ("orphan-result",),
        talk.tids["ok"]: (),
    }
    assert problems(space) == [
        ("orphan-result", space.address.uri("xyz.quasigod.lab.letta.message", stray))
    ]


def test_a_result_before_its_call_answers_nothing(talk, space):
    talk.add("early", 1, role="toolResult", toolCallId="c1")
    talk.add("calls", 2, role="assistant", content=[text("x"), call("c1"), call("c2|item")])
    talk.add("late", 3, role="toolResult", toolCallId="c1")
    talk.add("half", 4, role="toolResult", toolCallId="c2")
    talk.add("whole", 5, role="toolResult", toolCallId="c2|item")
    assert talk.window() == ["calls", "late", "half", "whole"]
    assert [kind for kind, _ in problems(space)] == ["orphan-result"]


def test_a_result_whose_call_was_summarised_is_left_out_of_the_window_only(talk, space):
    talk.add("calls", 1, role="assistant", content=[call("c1")])
    talk.add("result", 2, role="toolResult", toolCallId="c1")
    talk.add("A", 3, covers=["calls"])
    assert talk.window() == ["A"]
    assert all(not message.flags for message in space.transcript(talk.uri))
    assert problems(space) == []


@pytest.mark.parametrize("same_time", [False, True])
def test_o28_order_does_not_follow_the_clock(talk, space, same_time):
    times = ["00.500", "00.900", "00.700", "01.000"]
    created = ["2024-03-05T10:00:00.000Z" if same_time else f"2024-03-05T10:00:{t}Z" for t in times]
    roles = ["user", "assistant", "toolResult", "assistant"]
    # Keys against the order too: only seq may decide.
    rkeys = ["3mmmmmmmmmzz2", "3mmmmmmmmmyy2", "3mmmmmmmmmxx2", "3mmmmmmmmmww2"]
    for seq, (role, time, rkey) in enumerate(zip(roles, created, rkeys, strict=False), 1):
        fields = {"content": [call("c1")]} if seq == 2 else {}
        if seq == 3:
            fields["toolCallId"] = "c1"
        talk.add(f"#{seq}", seq, rkey=rkey, role=role, created=time, **fields)
    assert talk.window() == talk.transcript() == ["#1", "#2", "#3", "#4"]
    assert [m.created_at for m in space.window(talk.uri).messages] == created
    assert problems(space) == []


def test_a_shared_seq_is_ordered_by_tid_and_named(talk, space):
    talk.add("b", 1, rkey="3mmmmmmmmmbb2")
    talk.add("a", 1, rkey="3mmmmmmmmmaa2")
    talk.add("c", 2)
    assert talk.window() == ["a", "b", "c"]
    assert [kind for kind, _ in problems(space)] == ["seq"]


def test_o48_unknown_formats_are_kept_and_left_out_of_the_window(talk, space):
    newer = {"format": "letta.localMessage", "version": 7, "data": {"x": 1, "parts": ["seven"]}}
    other = {"format": "acme.msg", "version": 1, "data": {"said": "hello acme"}}
    talk.add("one", 1)
    talk.add("two", 2, payload=newer)
    talk.add("three", 3, role="observer", payload=other)
    window = space.window(talk.uri)
    assert talk.names(window.messages) == ["one"]
    assert [m.flags for m in window.left_out] == [("unknown-format",)] * 2
    shown = list(space.transcript(talk.uri))
    assert talk.names(shown) == ["one", "two", "three"]
    assert shown[1].value["message"] == newer
    assert shown[2].payload() == {"said": "hello acme"}
    talk.remark("two", status="compacted", updatedAt=TIME)
    assert list(space.transcript(talk.uri))[1].value["message"] == newer
    assert len(space.search("seven").hits) == len(space.search("hello acme").hits) == 1
    assert problems(space) == []


def test_messages_of_other_conversations_stay_out(space, talk):
    other = Talk(space, rkey="3bobobobobo22")
    talk.add("ours", 1)
    other.add("theirs", 1)
    assert talk.window() == ["ours"]
    assert other.window() == ["theirs"]


def test_a_message_may_move_to_another_conversation(space, talk):
    other = Talk(space, rkey="3bobobobobo22")
    talk.add("a", 1)
    talk.add("b", 2)
    stored = space.repo.get("xyz.quasigod.lab.letta.message", talk.tids["b"]).value
    space.repo.apply_writes(
        [
            Update(
                "xyz.quasigod.lab.letta.message",
                talk.tids["b"],
                {**stored, "conversation": other.uri},
            )
        ]
    )
    other.tids["b"] = talk.tids["b"]
    assert talk.window() == ["a"]
    assert other.window() == ["b"]
    assert problems(space) == []


def test_an_empty_conversation(space, talk):
    assert talk.window() == []
    assert talk.transcript() == []
    assert space.window("at://did:web:x.example/com.example.none/x").messages == []


def test_a_record_damaged_on_disk_is_named(space, talk):
    talk.add("a", 1)
    with space.database.write() as connection:
        connection.exec_driver_sql(
            f"UPDATE records SET value = x'ff' WHERE rkey = '{talk.tids['a']}'"
        )
    with pytest.raises(Damaged, match=talk.tids["a"]):
        talk.window()
    assert {kind for kind, _ in problems(space)} == {"cid", "encoding", "projection"}


def test_deep_chains_of_summaries(talk, space):
    previous = "m0"
    talk.add(previous, 1)
    for number in range(1, 1200, 1):
        talk.tids[f"m{number}"] = None
    writes = []
    from lettaspace.space.writes import Create

    keys = [
        f"3m{number:011}".replace("0", "z").replace("1", "y").replace("8", "x").replace("9", "w")
        for number in range(1200)
    ]
    talk.tids[previous] = talk.tids["m0"]
    for number in range(1, 1200):
        value, _ = talk.record(number + 1, name=f"m{number}")
        value["compactedMessageIds"] = [talk.tids["m0"] if number == 1 else keys[number - 1]]
        talk.tids[f"m{number}"] = keys[number]
        writes.append(Create("xyz.quasigod.lab.letta.message", keys[number], value))
    for start in range(0, len(writes), 200):
        space.repo.apply_writes(writes[start : start + 200])
    assert talk.window() == ["m1199"]
    assert talk.transcript() == [f"m{number}" for number in range(1200)]
