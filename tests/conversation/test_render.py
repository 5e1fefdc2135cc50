"""Rendering, held against what the real Letta Code writes and against its Node's own sorting."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from lettaspace.conversation import render
from lettaspace.conversation.collation import collation_key
from lettaspace.conversation.render import render_core_memory, render_prompt
from tests.conversation.memories import Link, Prompts, Tree, commit, git, running_letta
from tests.lab.lab import Lab

AT = datetime(2026, 5, 3, 0, 7, 9, 123000, tzinfo=UTC)


def page(description: str, body: str) -> bytes:
    return f"---\nname: x\ndescription: {description}\n---\n{body}".encode()


# Every shape a page may have, and what Letta makes of odd ones.
V2: dict[str, Tree] = {
    "only the index": {"MEMORY.md": b"# Memory\n"},
    "an empty index": {"MEMORY.md": b""},
    "pages": {
        "MEMORY.md": b"# Memory\n\n[facts](facts.md)\n\n\n",
        "persona.md": page("Who I am.", "\n\nWarm.\nSteady.\n\n"),
        "human.md": page("The person", "Teal."),
        "empty.md": b"",
        "only front.md": page("nothing below", ""),
        "spaces.md": b" \n\t\n  text with blanks around  \n \n",
        "bare.md": b"\n\n  no front matter, leading blanks stay\n\n",
        "ignored.txt": b"no Markdown",
        "UPPER.MD": b"no Markdown to Letta",
        ".hidden.md": b"a dot first",
        ".md": b"a name of nothing",
        "profile.png": b"\x89PNG\x00\xff",
    },
    "line ends and marks": {
        "MEMORY.md": b"\xef\xbb\xbf# Index\r\nwith CRLF\r\n",
        "crlf.md": b"---\r\nname: x\r\ndescription: crlf\r\n---\r\nbody\r\nmore\r\n",
        "cr.md": b"---\rdescription: old mac\r---\rbody\rmore\r",
        "bom.md": b"\xef\xbb\xbf---\ndescription: marked\n---\nbody",
        "two-boms.md": b"\xef\xbb\xbf\xef\xbb\xbf---\ndescription: twice\n---\nbody",
        "latin1.md": b"caf\xe9 \xff\xfe \xe2\x82 \xed\xa0\xbd \xf0\x9f end \xc0\x80",
        "controls.md": b"nul \x00 bell \x07 \x1c\x1d\x1e\x1f \x85 end\x1c\n\x1c",
        "odd-space.md": "\u00a0\u2003 text \u3000\ufeff\u2028".encode(),
        "next-line.md": "---\ndescription: \u0085kept\u0085\n---\n\u0085 text \u0085".encode(),
        "unicode.md": "\U0001f9ea 語 é e\u0301 \u2028 line".encode(),
    },
    "front matter": {
        "MEMORY.md": b"---\ndescription: of the index\n---\nindex body\n",
        "unclosed.md": b"---\ndescription: x\nbody",
        "closed-at-end.md": b"---\ndescription: at the end\n---",
        "dashes.md": b"---\ndescription: more dashes\n----\nstill front\n---\nbody",
        "nothing.md": b"---\n---\nbody",
        "blank.md": b"---\n\n---\nbody",
        "late.md": b"\n---\ndescription: x\n---\nbody",
        "quoted.md": b'---\ndescription: "with: colon" \n---\nbody',
        "no-space.md": b"---\ndescription:tight\n---\nbody",
        "spaced-key.md": b"---\ndescription  :  wide  \n---\nbody",
        "indented.md": b"---\n description: no\n---\nbody",
        "capital.md": b"---\nDescription: no\n---\nbody",
        "twice.md": b"---\ndescription: one\ndescription: two\n---\nbody",
        "taken-back.md": b"---\ndescription: one\ndescription:\n---\nbody",
        "list.md": b"---\ndescription:\n  - a\n  - b\nname: x\n---\nbody",
        "colon-first.md": b"---\n: x\ndescription: y\n---\nbody",
        "block.md": b"---\ndescription: |\n  one\n    two\n\n  three\n\nname: x\n---\nbody",
        "strip.md": b"---\ndescription: |-\n\n  one\n  two\n---\nbody",
        "keep.md": b"---\ndescription: |+\n  one\n\n\n---\nbody",
        "folded.md": (
            b"---\ndescription: >\n\n\n  one\n  two\n\n\n  three\n   four\nname: x\n---\nbody"
        ),
        "folded-strip.md": b"---\ndescription: >-\n  one\n\n  two\n---\nbody",
        "empty-block.md": b"---\ndescription: |\nname: x\n---\nbody",
        "tabs.md": b"---\ndescription: >\n\tone\n\ttwo\n---\nbody",
        "no-block.md": b"---\ndescription: |2\n  one\n---\nbody",
        "other-block.md": b"---\nname: |\n  x\n description: no\ndescription: yes\n---\nbody",
        "rule.md": b"---\ndescription: x\n---\nbody\n---\nmore\n---\n",
    },
    "directories": {
        "MEMORY.md": b"index\n",
        "projects/MEMORY.md": b"projects",
        "projects/deep/MEMORY.md": b"not listed at the root",
        "projects/one.md": b"deferred",
        "notes/loose.md": b"no index here",
        "skills/MEMORY.md": b"never memory",
        "skills/x/SKILL.md": b"a skill",
        "a&b<c>'d/MEMORY.md": b"escaped",
        "Zoo/MEMORY.md": b"capital",
        "apple/MEMORY.md": b"small",
        "_under/MEMORY.md": b"sign",
        "system/persona.md": b"of the other layout",
        "empty/MEMORY.md": b"",
        "memory/memory.md": b"another name",
    },
    "names": {
        "MEMORY.md": b"index",
        **{
            f"{name}.md": name.encode()
            for name in (
                "a",
                "A",
                "b",
                "B",
                "a-b",
                "a_b",
                "a b",
                "ab",
                "a.b",
                "a,b",
                "a1",
                "a10",
                "a2",
                "Ab",
                "aB",
                "AB",
                "0",
                "10",
                "9",
                "~x",
                "-x",
                "_x",
                "$x",
                "#x",
                "@x",
                "(x)",
                "[x]",
                "{x}",
                "x'y",
                "x`y",
                "x^y",
                "x+y",
                "x=y",
                "x<y",
                "x>y",
                "x|y",
                "x;y",
                "x!",
                "x?",
                "x*",
                "x%",
                "x&y",
                "x:y",
                "memory",
                "Memory",
                "a.md",
            )
        },
    },
    "names Letta does not see": {
        "MEMORY.md": b"index",
        "café.md": b"not ASCII",
        "語.md": b"not ASCII either",
        'quo"te.md': b"a quote",
        "back\\slash.md": b"a backslash",
        "tab\there.md": b"a control character",
        " first.md": b"a space first",
        "seen.md": b"an ordinary name",
        "é/MEMORY.md": b"a directory with such a name",
        " dir/MEMORY.md": b"and one that begins with a space",
    },
    "links": {
        "MEMORY.md": b"index",
        "real.md": b"real",
        "link.md": Link("real.md"),
        "outside.md": Link("/etc/hostname"),
        "dir/MEMORY.md": Link("../real.md"),
    },
    "dollars of no meaning": {"MEMORY.md": b"index", "x.md": b"$MEMORY_DIR $1 $<x> 5$ $"},
    "the variable itself": {"MEMORY.md": b"index", "x.md": b"about {CORE_MEMORY} itself"},
}

V1: dict[str, Tree] = {
    "nothing": {},
    "no Markdown": {"x.txt": b"text"},
    "a persona": {"system/persona.md": page("me", "Warm.\n\n")},
    "an empty persona": {"system/persona.md": b""},
    "the usual": {
        "system/persona.md": page("me", "Warm.\nSteady."),
        "system/human.md": page("The person", "Teal.\nFig.\n"),
        "system/project/rules.md": page("Rules", "\n  indented\nnext\n"),
        "system/project/deep/er.md": b"deeper",
        "system/project.md": b"beside its directory",
        "system/empty.md": b"",
        "system/persona/child.md": b"below the persona",
        "system/note.txt": b"no Markdown",
        "reference/a.md": page("ref", "x"),
        "reference/b/c.md": b"y",
        "root.md": b"z",
        "skills/x/SKILL.md": b"a skill",
        "other.txt": b"not listed",
        "system/.md": b"a name of nothing",
        "system/project/.md": b"a name of nothing, deeper",
        "reference/.md": b"a name of nothing, outside",
    },
    "only outside": {"notes/a.md": b"a", "b.md": b"b", "MEMORY/x.md": b"c"},
    "only skills": {"skills/x/SKILL.md": b"a skill"},
    "names": {
        **{
            f"{directory}/{name}.md": name.encode()
            for name in ("b", "B", "a_b", "a-b", "ab", "10", "9")
            for directory in ("system", "out")
        },
        "out/B/x.md": b"directories first",
        "out/é.md": b"unseen",
        "system/é.md": b"unseen",
        "Out/x.md": b"capital",
        "link.md": Link("out/b.md"),
        "system/link.md": Link("b.md"),
    },
    "names every object has": {
        "system/constructor.md": b"lost",
        "system/toString/x.md": b"lost as well",
        "system/kept/valueOf.md": b"lost",
        "out/constructor.md": b"listed",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def prompts(letta_lab: Lab) -> Iterator[Prompts]:
    with running_letta(letta_lab, "prompts") as running:
        yield running


@pytest.mark.parametrize("case", V2)
def test_v2_is_what_letta_writes(prompts: Prompts, case: str) -> None:
    revision = commit(prompts.memory, V2[case])
    record = prompts.compile()
    assert record["memfsRevision"] == revision
    ours = prompts.core_memory(record)
    assert ours == record["coreMemory"]
    assert render_prompt(prompts.template, ours) == record["content"]
    assert "memory_metadata" not in ours


@pytest.mark.parametrize("case", V1)
def test_v1_is_what_letta_writes(prompts: Prompts, case: str) -> None:
    commit(prompts.memory, V1[case])
    record = prompts.compile()
    ours = prompts.core_memory(record)
    assert ours == record["coreMemory"]
    assert render_prompt(prompts.template, ours) == record["content"]
    assert prompts.agent in ours


def test_where_we_differ_from_letta(prompts: Prompts) -> None:
    """Core memory goes into the template as it is; Letta reads `$$` and its like."""
    text = b"cost $$5, all $&, before $` and after $' and $$& $MEMORY_DIR"
    commit(prompts.memory, {"MEMORY.md": b"index", "x.md": text})
    record = prompts.compile()
    ours = prompts.core_memory(record)
    assert ours == record["coreMemory"]
    assert ours not in record["content"]
    assert ours in render_prompt(prompts.template, ours)
    assert render.letta_prompt(prompts.template, ours) == record["content"]


def test_letta_skips_large_files_and_we_do_not(prompts: Prompts) -> None:
    commit(prompts.memory, {"MEMORY.md": b"index", "big.md": b"x" * (1 << 20) + b"x"})
    record = prompts.compile()
    assert "<big>" not in record["coreMemory"]
    assert "<big>" in prompts.core_memory(record)


def test_submodules_are_no_content(prompts: Prompts) -> None:
    files: Tree = {"MEMORY.md": b"index", "real.md": b"real"}
    commit(prompts.memory, files, submodules=("module.md", "dir/inner.md"))
    record = prompts.compile()
    assert prompts.core_memory(record) == record["coreMemory"]
    assert "module" not in record["coreMemory"]


def test_names_beyond_ascii_where_git_is_told_not_to_quote(prompts: Prompts) -> None:
    names = [
        "é",
        "e",
        "f",
        "É",
        "e\u0301a",
        "ä",
        "z",
        "Я",
        "й",
        "и",
        "α",
        "語",
        "ø",
        "ö",
        "ß",
        "st",
    ]
    files: dict[str, bytes] = {f"{name}.md": name.encode() for name in names}
    commit(prompts.memory, {**files, "MEMORY.md": b"index", "é/MEMORY.md": b"", 'q"q.md': b"no"})
    git(prompts.memory, "config", "core.quotePath", "false")
    try:
        record = prompts.compile()
        ours = prompts.core_memory(record)
    finally:
        git(prompts.memory, "config", "--unset", "core.quotePath")
    assert ours == record["coreMemory"]
    assert "<語>" in ours
    assert 'path="é/"' in ours


@pytest.mark.parametrize(
    "template", ["Bare.\n \n", "{CORE_MEMORY}", "a {CORE_MEMORY} b {CORE_MEMORY}\n", ""]
)
def test_template_is_filled_as_letta_fills_it(letta_lab: Lab, template: str) -> None:
    core = "<memory>\n$& {CORE_MEMORY} $$\n</memory>"
    script = (
        "const [t, m] = JSON.parse(require('fs').readFileSync(0, 'utf8')), v = '{CORE_MEMORY}';"
        "const p = t.includes(v) ? t : t.trimEnd() + '\\n\\n' + v;"
        "console.log(JSON.stringify(p.replaceAll(v, m)))"
    )
    assert render.letta_prompt(template, core) == node(letta_lab, script, [template, core])
    assert core in render_prompt(template, core)


def test_update_text_is_lettas(letta_lab: Lab) -> None:
    """What the model was sent in the scenario `memory`, which knows of one commit."""
    home = letta_lab.built("memory")
    (agent,) = (home.storage / "memfs").iterdir()
    revision = git(agent / "memory", "rev-parse", "HEAD")
    sent = [
        text[text.index("<memory_update>") :]
        for request in letta_lab.provider.requests
        for text in strings(request.body)
        if f"at revision {revision}." in text
    ]
    path = home.storage / "conversations"
    records = [json.loads(file.read_text("utf-8")) for file in path.glob("*/system-prompt.json")]
    (core,) = {record["coreMemory"] for record in records if record["memfsRevision"] == revision}
    assert sent == [render.render_memory_update(core, revision)]


ASCII = [chr(code) for code in range(32, 127)]
LATIN = [chr(code) for code in (*range(0xC0, 0x180), *range(0x41, 0x5B), *range(0x61, 0x7B))]
GREEK = list("αβγδεζηθικλμνξοπρσςτυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩάέήίόύώΐϊΆΈ")
CYRILLIC = [chr(code) for code in range(0x400, 0x460)] + list("ґҐәөүҷңқһ")
ALPHABETS = {
    "ascii": ASCII,
    "cases": list("aAbB-_. 19"),
    "latin": [char for char in LATIN if char not in "×÷ĿŀŉſŁ"],
    "accents": [
        "a",
        "A",
        "á",
        "Á",
        "à",
        "a\u0301",
        "ä",
        "æ",
        "Æ",
        "e",
        "ß",
        "s",
        "đ",
        "ð",
        "d",
        "ø",
    ],
    "greek": GREEK,
    "cyrillic": CYRILLIC,
    "hangul": [chr(code) for code in range(0xAC00, 0xD7A4, 37)],
    "mixed": ASCII + GREEK + CYRILLIC + ["語", "字", "가"],
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_names_sort_as_node_sorts_them(letta_lab: Lab, alphabet: str) -> None:
    chance = random.Random(alphabet)
    letters = ALPHABETS[alphabet]
    pairs = [near(chance, letters) for _ in range(20_000)]
    script = (
        "const p = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify(p.map(([a, b]) => Math.sign(a.localeCompare(b)))))"
    )
    for pair, expected in zip(pairs, node(letta_lab, script, pairs), strict=True):
        left, right = map(collation_key, pair)
        assert (left > right) - (left < right) == expected, pair


def test_ascii_order_as_it_is() -> None:
    order = "".join(sorted(ASCII, key=collation_key))
    signs = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"
    assert order == signs + "aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"


def test_unseen_names_are_told() -> None:
    files = dict.fromkeys(("é.md", "a.md", " b.md", 'c".md', "d.txt", "x\\y.md", "z\n.md"), b"")
    assert render.unseen(files) == ["é.md", " b.md", 'c".md', "x\\y.md", "z\n.md"]
    assert render.unseen(files, quote_path=False) == [" b.md", 'c".md', "x\\y.md", "z\n.md"]


def test_metadata_of_layout_v1() -> None:
    def at(moment: datetime) -> str:
        return render_core_memory(
            {}, agent_id="A", conversation_id="C", compiled_at=moment, message_count=7
        )

    assert at(AT) == (
        "<memory_metadata>\n- AGENT_ID: A\n- CONVERSATION_ID: C\n"
        "- System prompt last recompiled: 2026-05-03 12:07:09 AM UTC+0000\n"
        "- 7 previous messages between you and the user are stored in recall memory\n"
        "</memory_metadata>"
    )
    assert "2026-05-03 12:00:00 PM" in at(AT.replace(hour=12, minute=0, second=0))
    assert "2026-05-03 11:59:59 PM" in at(AT.replace(hour=23, minute=59, second=59))
    assert render.without_metadata(at(AT)) == ""
    assert render.without_metadata("core\n\n" + at(AT)) == "core"
    assert render.without_metadata("core") == "core"


def near(chance: random.Random, letters: list[str]) -> tuple[str, str]:
    """Two names, mostly alike."""
    left = [chance.choice(letters) for _ in range(chance.randint(1, 7))]
    right = list(left)
    for _ in range(chance.randint(1, 3)):
        right[chance.randrange(len(right))] = chance.choice(letters)
    if chance.random() < 0.3:
        right.append(chance.choice(letters))
    return "".join(left), "".join(right)


def node(lab: Lab, script: str, given: object) -> object:
    """What Letta's own Node makes of a value, as JSON."""
    found = find_spec("letta_code")
    bundled = Path(found.origin or "").parent / "_payload/bin/node" if found else None
    program = str(bundled) if bundled and bundled.exists() else shutil.which("node")
    if program is None:
        pytest.skip("no Node")
    done = subprocess.run(
        [program, "-e", script], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
