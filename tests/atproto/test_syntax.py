"""Identifier syntax: examples on both sides of every rule."""

from __future__ import annotations

import pytest

from lettaspace.atproto import syntax

PLC = "did:plc:7iza6de2dwap2sbkpav7c6c6"

VALID = {
    syntax.is_did: [
        PLC,
        "did:web:example.com",
        "did:web:localhost%3A1234",
        "did:m:v",
        "did:method::::val",
        "did:method:-",
        "did:method:VAL_ue.x",
        "did:key:" + "z" * (2048 - 8),
    ],
    syntax.is_handle: [
        "ada.example",
        "a.co",
        "xn--ls8h.test",
        "1.2.com",
        "A.B-c.Example",
        "o" * 63 + ".test",
        ".".join(["a" * 49] * 5) + ".tes",
        "laptop.x-y",
    ],
    syntax.is_nsid: [
        "com.example.note",
        "a.b.c",
        "one.2.three",
        "a-0.b-1.c",
        "cn.8.lex.stuff",
        "com.example.fooBarV2",
        "xn--fiqs8s.xn--a.record",
        "com." + "o" * 63 + ".foo",
        "com.example." + "o" * 63,
        ".".join(["com"] + ["a" * 49] * 4 + ["b" * 49]) + "." + "n" * 63,
    ],
    syntax.is_record_key: ["a", "self", "3jui7kd54zh2y", "...", "~1.2_3:4-", ".a", "k" * 512],
    syntax.is_tid: ["3jzfcijpj2z2a", "2222222222222", "jzzzzzzzzzzzz"],
    syntax.is_datetime: [
        "1985-04-12T23:20:50Z",
        "1985-04-12T23:20:50.1Z",
        "1985-04-12T23:20:50.12345678901234567890Z",
        "1985-04-12T23:20:50.123-07:00",
        "1985-04-12T23:20:50.123+00:00",
        "1985-04-12T23:20:50+23:59",
        "0010-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
        "2000-02-29T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2023-02-28T00:00:00Z",
        "2023-01-31T00:00:00Z",
        "2023-04-30T00:00:00Z",
        "2023-12-31T00:00:00-00:01",
        "2023-12-31T00:00:00-01:00",
    ],
    syntax.is_language: [
        "ja",
        "ban",
        "pt-BR",
        "hy-Latn-IT-arevela",
        "zh-Hant",
        "es-419",
        "de-CH-1901",
        "zh-yue",
        "en-GB-boont-r-extended-sequence-x-private",
        "x-whatever",
        "X-fr-CH",
        "i-navajo",
        "i-default",
        "sgn-BE-NL",
        "EN-gb-OED",
    ],
    syntax.is_uri: [
        "https://example.com/path?q=blah&yes=true#frag",
        "dns:example.com",
        "did:key:zQ3sh",
        "content-type:text/plain",
        "microsoft.windows.camera:thing",
        "go://?Mercedes%20Benz",
        "h:" + "x" * 8190,
    ],
    syntax.is_cid_string: [
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua",
        "bafkreihe3vqwcuvhm5qrl25rxtuknkbz6oj42a62yjxn2ayhf66pc6ebpu",
    ],
    syntax.is_at_identifier: [PLC, "ada.example"],
}

INVALID = {
    syntax.is_did: [
        "did",
        "did:plc:",
        "did:plc",
        "DID:plc:a",
        "did:PLC:a",
        "did:m1:a",
        "did:m:a:",
        "did:m:a%",
        "did:m:a/b",
        "did:m:a?b",
        "did:m:a#b",
        "did:m:a b",
        "did:m:é",
        "did:key:" + "z" * (2048 - 7),
        "x" + PLC,
    ],
    syntax.is_handle: [
        "example",
        "john.0",
        "john.-",
        "-john.test",
        "john-.test",
        "john..test",
        ".john.test",
        "john.test.",
        "jo_hn.test",
        "jo@hn.test",
        "127.0.0.1",
        "bücher.test",
        "o" * 64 + ".test",
        ".".join(["a" * 49] * 5) + ".test",
        PLC,
    ],
    syntax.is_nsid: [
        "com.example",
        "com",
        "com.example.*",
        "com.example.foo.*",
        "1.0.0.127.record",
        "0two.example.foo",
        "com.example.2foo",
        "com.example.foo-bar",
        "com.example.p_st",
        "com..example.foo",
        ".com.example.foo",
        "com.example.foo.",
        "com.example-.foo",
        "com.-example.foo",
        "com.example.fooé",
        "com." + "o" * 64 + ".foo",
        "com.example." + "o" * 64,
        ".".join(["comm"] + ["a" * 49] * 4 + ["b" * 49]) + ".n",
    ],
    syntax.is_record_key: ["", ".", "..", "a/b", "a b", "a%20", "a#", "@a", "é", "k" * 513],
    syntax.is_tid: [
        "3jzfcijpj2z21",
        "0000000000000",
        "3JZFCIJPJ2Z2A",
        "3jzfcijpj2z2aa",
        "3jzfcijpj2z2",
        "3jzf-cij-pj2z-2a",
        "kjzfcijpj2z2a",
        "zzzzzzzzzzzzz",
        "",
    ],
    syntax.is_datetime: [
        "1985-04-12",
        "1985-04-12T23:20Z",
        "1985-04-12T23:20:50",
        "1985-04-12t23:20:50Z",
        "1985-04-12T23:20:50z",
        "1985-04-12 23:20:50Z",
        "1985-04-12T23:20:50.Z",
        "1985-04-12T23:20:50,1Z",
        "1985-04-12T23:20:50.123456789012345678901Z",
        "1985-04-12T23:20:50-00:00",
        "1985-04-12T23:20:50+24:00",
        "1985-04-12T23:20:50+00:60",
        "1985-04-12T23:20:50+0000",
        "1985-04-12T23:20:50+00",
        "01985-04-12T23:20:50Z",
        "+001985-04-12T23:20:50Z",
        "-000001-12-31T23:00:00Z",
        "1985-4-12T23:20:50Z",
        "1985-00-12T23:20:50Z",
        "1985-13-12T23:20:50Z",
        "1985-04-00T23:20:50Z",
        "1985-04-31T23:20:50Z",
        "1985-06-31T23:20:50Z",
        "1985-09-31T23:20:50Z",
        "1985-11-31T23:20:50Z",
        "1985-01-32T23:20:50Z",
        "1985-02-29T23:20:50Z",
        "1900-02-29T23:20:50Z",
        "2024-02-30T00:00:00Z",
        "1985-04-12T24:00:00Z",
        "1985-04-12T23:60:00Z",
        "1985-04-12T23:20:60Z",
        "0000-01-01T00:00:00Z",
        "0009-12-31T00:00:00Z",
        "１985-04-12T23:20:50Z",
    ],
    syntax.is_language: [
        "",
        ".",
        "123",
        "j",
        "ja-",
        "a-DE",
        "de-419-DE",
        "en_US",
        "x",
        "toolongtag",
        "en-a",
        "sgn-be-",
        "ſgn-BE-NL",  # folds to s when case is ignored beyond ASCII
    ],
    syntax.is_uri: [
        "example.com",
        "//example.com",
        "http:",
        ".http://example.com",
        "1http://example.com",
        "https://example.com/path gap",
        " https://example.com",
        "https://exämple.com",
        "h:" + "x" * 8191,
    ],
    syntax.is_cid_string: [
        "",
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",  # dag-pb
        "BAFYREIGBTJ4X7IP5LEGNFZNUFUOPL4SG4KNZC2COF6DUAS4B3Q2FY6SWUA",
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swu",
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swuaa",
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swub",  # stray bits
        "bafyreizbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua",  # digest of 35 bytes
        "afyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua",
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6sw1a",
    ],
    syntax.is_at_identifier: ["", "ada", "did:plc:", "at://ada.example"],
}


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, texts in VALID.items() for text in texts]
)
def test_valid(check, text):
    assert check(text) is True


@pytest.mark.parametrize(
    ("check", "text"), [(check, text) for check, texts in INVALID.items() for text in texts]
)
def test_invalid(check, text):
    assert check(text) is False


@pytest.mark.parametrize("check", VALID)
def test_the_whole_text_counts(check):
    for text in VALID[check][:3]:
        for around in (text + "\n", "\n" + text, text + "\0", text + " ", text + "\n" + text):
            assert check(around) is False


@pytest.mark.parametrize("check", VALID)
@pytest.mark.parametrize("value", [None, 1, True, b"did:web:example.com", [], {}])
def test_what_is_not_a_string_has_no_form(check, value):
    assert check(value) is False


@pytest.mark.parametrize("check", VALID)
def test_hostile_texts_do_not_take_long(check):
    # A pattern that backtracks would not come back from these.
    for piece in ("a", "-", ".", ":", "a.", "a-", "-a", "%"):
        for head in ("", "did:a:", "a.", "at://", "en-", "1985-04-12T23:20:50."):
            for tail in ("", "!", "-"):
                check(head + piece * 4000 + tail)
