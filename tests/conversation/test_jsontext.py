import copy
import enum
import json
import pickle
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lettaspace.conversation import jsontext
from lettaspace.conversation.jsontext import Number, dumps, loads, source_text
from lettaspace.errors import InvalidInput

from .jsongen import CONSTANTS, LONG_NUMBER, NUMBERS, strings, texts, texts_with_constants, tree


@given(texts())
def test_text_comes_back_with_its_meaning(text):
    for again in (dumps(loads(text)), dumps(loads(text), ascii=True), dumps(loads(text), indent=2)):
        assert tree(again) == tree(text)
        again.encode()


@given(texts())
def test_bytes_are_read_as_text_is(text):
    assert dumps(loads(text.encode())) == dumps(loads(text))


@given(texts())
def test_written_text_is_stable(text):
    once = dumps(loads(text))
    assert dumps(loads(once)) == once
    assert dumps(loads(once), ascii=True).isascii()


@given(texts_with_constants)
def test_source_text_keeps_constants(text):
    assert tree(source_text(loads(text))) == tree(text)
    assert source_text(loads(text)).isascii()


@given(texts_with_constants)
def test_nothing_written_is_beyond_json(text):
    def refuse(token):
        raise AssertionError(token)

    json.loads(dumps(loads(text)), parse_constant=refuse)
    json.loads(dumps(loads(text), indent=1), parse_constant=refuse)


@given(texts())
def test_values_are_those_of_the_standard_library(text):
    assert loads(text) == json.loads(text, parse_int=lambda t: float(t) if len(t) > 640 else int(t))


@given(strings, st.booleans())
def test_strings_match_the_standard_library(value, ascii_only):
    joined = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert loads(dumps(value, ascii=ascii_only)) == joined


@given(st.recursive(st.booleans() | st.integers() | st.floats(-9, 9) | st.text(), st.lists))
def test_indent_matches_the_standard_library(value):
    assert dumps(value, indent=2) == json.dumps(value, indent=2, ensure_ascii=False)
    assert dumps({"a": value, "b": {}}, indent=3) == json.dumps(
        {"a": value, "b": {}}, indent=3, ensure_ascii=False
    )


# What JSON.stringify prints for the same value, from running it.
STRINGIFIED = {
    "\x00\x01\x07\b\t\n\x0b\f\r\x0e\x1f": r'"\u0000\u0001\u0007\b\t\n\u000b\f\r\u000e\u001f"',
    '"\\/\x7f\x80é': '"\\"\\\\/\x7f\x80é"',
    "\u2028\u2029\ufeff\uffff": '"\u2028\u2029\ufeff\uffff"',
    "\ud83c end": r'"\ud83c end"',
    "\udfff\ud83e\uddea\ud83e": r'"\udfff🧪\ud83e"',
    "\ud83e" + "\uddea": '"🧪"',
    "🧪": '"🧪"',
}


@pytest.mark.parametrize("value", STRINGIFIED)
def test_strings_are_escaped_as_javascript_does(value):
    assert dumps(value) == STRINGIFIED[value]
    assert dumps({value: [value]}) == f"{{{STRINGIFIED[value]}:[{STRINGIFIED[value]}]}}"


@pytest.mark.parametrize("text", [*NUMBERS, LONG_NUMBER], ids=range(len(NUMBERS) + 1))
def test_number_text_is_kept(text):
    value = loads(text)
    assert dumps(value) == text
    assert dumps([value], ascii=True) == f"[{text}]"
    plain = text.lstrip("-").isdigit() and text != "-0" and len(text) <= jsontext.MAX_INT_DIGITS
    assert type(value) is (int if plain else Number)


def test_number_is_a_float_that_remembers():
    one = loads("1.0")
    assert one == 1
    assert one.text == str(one) == "1.0"
    assert not one.is_constant
    assert repr(one) == "Number('1.0')"
    for twin in (
        copy.deepcopy(one),
        copy.copy(one),
        pickle.loads(pickle.dumps(one)),  # noqa: S301
        Number("1.0"),
    ):
        assert (twin, twin.text, type(twin)) == (1.0, "1.0", Number)
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize(
    "text", ["", "01", "1.", ".5", "+1", "1_0", " 1", "nan", "0x1", "٣", "1\n"]
)
def test_number_refuses_what_json_does(text):
    with pytest.raises(ValueError, match="JSON number"):
        Number(text)


@pytest.mark.parametrize("text", CONSTANTS)
def test_o22_constants_are_read_and_never_written_bare(text):
    value = loads(f'{{"cost":{text}}}')
    assert value["cost"].is_constant
    assert jsontext.count_constants(value) == 1
    written = f'{{"cost":{{"$type":"xyz.quasigod.lab.letta.defs#json","json":"{text}"}}}}'
    assert dumps(value) == written
    assert dumps({"cost": float(value["cost"])}) == written
    assert source_text(value) == f'{{"cost":{text}}}'


def test_o22_costs_and_ids_keep_their_text():
    text = (
        '{"cost":{"input":0.0123,"output":1.0,"total":1e-7,"x":-0.0},"id":9007199254740993,"n":1}'
    )
    assert dumps(loads(text)) == text


def test_o16_lone_surrogate_is_written_as_it_was():
    text = r'{"text":"tag \ud83c end","next":"fine 🧪"}'
    assert loads(text)["text"] == "tag \ud83c end"
    assert dumps(loads(text)) == text
    assert not jsontext.well_formed(loads(text)["text"])
    assert jsontext.well_formed("fine 🧪")


def test_o17_escaped_pair_is_one_character():
    assert loads(r'{"t":"\ud83e\uddea"}') == loads('{"t":"🧪"}'.encode()) == {"t": "🧪"}
    assert loads(r'"\ud83e\ud83e\uddea"') == "\ud83e🧪"


def test_o18_line_separators_stay_inside_their_string():
    text = '{"text":"a\u2028b\u2029c\u0085d \\u000b"}'
    assert loads(text.encode())["text"] == "a\u2028b\u2029c\u0085d \x0b"
    assert dumps(loads(text)) == text
    assert "\u2028" not in dumps(loads(text), ascii=True)


def test_o19_nul_keeps_its_place():
    assert loads(r'"a\u0000b"') == "a\0b"
    assert dumps("a\0b") == r'"a\u0000b"'


def test_duplicate_keys_count_as_in_javascript():
    assert dumps(loads('{"a":1,"b":2,"a":3}')) == '{"a":3,"b":2}'
    assert dumps(loads('{"__proto__":1,"a":2,"__proto__":[]}')) == '{"__proto__":[],"a":2}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON at character 0: expecting value"),
        ("{", "not JSON at character 1"),
        ('{"a":1,}', "not JSON at character [67]"),
        ("[1] 2", "not JSON at character 4: extra data"),
        ("01", "not JSON at character 1: extra data"),
        ("nan", "not JSON at character 0"),
        ("\ufeff{}", "not JSON at character 0"),
        ('"a\nb"', "not JSON at character 2: invalid control character"),
        ('"secret words', "not JSON at character 0: unterminated string"),
        (r'"\x41"', "not JSON at character"),
        (b'"abc\xff"', "not UTF-8 at byte 4"),
        (b'"\xed\xa0\xbc"', "not UTF-8 at byte 1"),
    ],
)
def test_malformed_text_is_refused_with_its_position(text, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        loads(text)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"b":'])
def test_nesting_has_one_limit_and_never_overflows(opening):
    closing = opening.translate(str.maketrans("[{", "]}", '"ab:'))[::-1]
    deepest = jsontext.MAX_DEPTH // len(closing)
    text = opening * deepest + "0" + closing * deepest
    assert dumps(loads(text)) == text
    for levels in (deepest + 1, 1_000, 200_000):
        with pytest.raises(InvalidInput, match="nested too deeply"):
            loads(opening * levels + "0" + closing * levels)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        dumps([loads(text)])
    with pytest.raises(InvalidInput, match="nested too deeply"):
        dumps([loads(text)], indent=1)


def test_brackets_in_strings_are_no_nesting():
    text = json.dumps(["[{" * 5_000, '\\"[[' * 2_000], separators=(",", ":"))
    assert dumps(loads(text)) == text


def test_a_cycle_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(InvalidInput):
        dumps(loop)


class Color(enum.StrEnum):
    RED = "red"


class Kind(str, enum.Enum):  # noqa: UP042 - the older idiom prints differently
    ONE = "one"


class Level(enum.IntEnum):
    LOW = 1


def test_subclasses_are_written_as_their_base():
    value = [Color.RED, Kind.ONE, Level.LOW, OrderedDict(b=1, a=2)]
    assert dumps(value) == '["red","one",1,{"b":1,"a":2}]'


@pytest.mark.parametrize("value", [b"x", (1,), {1: 2}, {None: 1}, {1, 2}, object()])
def test_what_json_has_not_is_refused(value):
    with pytest.raises(InvalidInput):
        dumps([value])


def test_an_integer_python_will_not_print_is_refused():
    with pytest.raises(InvalidInput, match="too many digits"):
        dumps([10**5000])


def test_python_floats_are_written_as_python_does():
    assert dumps([1.0, 1e-7, -0.0, 1e16]) == "[1.0,1e-07,-0.0,1e+16]"
