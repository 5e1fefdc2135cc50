"""`lettaspace export`: the files it writes, and what it leaves out of them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from lettaspace.conversation.space import Space
from lettaspace.letta.importer import import_directory
from tests.cli.conftest import Cli, process
from tests.conversation.talk import Talk
from tests.letta.build import Store, b1, call, message, prompt, result, rows, text

FORMS = ("md", "html", "json", "jsonl")

TOKEN = "ghp_" + "E" * 36
BEARER = "TEST-000-abcdef0123456789"
PASSWORD = "TEST4711"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----"
SECRETS = {
    "token": TOKEN,
    "bearer": BEARER,
    "password": PASSWORD,
    "key": "MIIEvQIBADANBgkqhkiG9w0BAQEF",
}
PRINTED = f"{TOKEN}\nAuthorization: Bearer {BEARER}\n{KEY}\npostgres://u:{PASSWORD}@h/db"


@pytest.fixture
def leaky(home: Path, tmp_path: Path) -> Path:
    """A home where secrets stand in a title, a prompt, a summary, arguments and outputs."""
    store = Store(tmp_path / "letta")
    store.agent()
    talk = [
        message(1, "user", f"Why is this refused? {PRINTED}"),
        message(2, "assistant", [text(PRINTED), call("call_1", "sh", {"env": PRINTED})]),
        result(3, "call_1", PRINTED),
        message(4, "assistant", "ok", errorMessage=PRINTED),
    ]
    system = prompt(content=PRINTED, coreMemory=PRINTED)
    store.conversation(rows(talk), prompt=system, summary=f"Why? {PRINTED}")
    with Space.open(home) as space:
        import_directory(space, store.path)
        space.conversation("local-conv-1").compact(lambda _: f"It was {PRINTED}")
    return home


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [False, True])
def test_o45_no_form_holds_a_secret(cli: Cli, leaky: Path, form: str, window: bool) -> None:
    part = ["--window"] if window else []
    redacted = cli("export", "local-conv-1", "--format", form, *part)
    everything = cli("export", "local-conv-1", "--format", form, *part, "--no-redact")
    assert redacted.code == everything.code == 0
    for name, value in SECRETS.items():
        assert value in everything.out, name
        assert value not in redacted.out, name
    assert "[redacted: " in redacted.out.replace("\\", "")
    assert "[redacted: " not in everything.out.replace("\\", "")
    assert redacted.err.startswith("lettaspace: redacted ")
    assert redacted.err.endswith(" lists them\n")
    assert len(redacted.err.splitlines()) == 1
    assert everything.err == ""


def test_o45_titles_and_summaries_too(cli: Cli, leaky: Path) -> None:
    for flag, is_there in (([], False), (["--no-redact"], True)):
        whole = cli("export", "local-conv-1", "--format", "json", *flag).json
        summary = next(each for each in whole["messages"] if "compactedMessageIds" in each)
        said = summary["message"]["data"]
        texts = [
            whole["conversation"]["title"],
            said["content"][0]["text"],
            said["metadata"]["compaction"]["summary"],
            whole["messages"][1]["message"]["data"]["content"][1]["arguments"]["env"],
            whole["prompt"]["content"],
        ]
        assert whole["redacted"] is not is_there
        assert [PASSWORD in each for each in texts] == [is_there] * 5


def test_o43_with_redaction_ids_signatures_and_images_stay(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    picture = "iVBORw0KGgo" + "A" * 20_001
    parts = [
        {"type": "thinking", "thinking": f"see {TOKEN}", "thinkingSignature": TOKEN},
        {"type": "image", "mimeType": "image/png", "data": picture},
        call("sk-proj-0123456789abcdef0123|fc_1", "ls", {}),
    ]
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows([message(1, "assistant", parts)]))
    with Space.open(home) as space:
        import_directory(space, store.path)
    for form in ("json", "jsonl"):
        out = cli("export", "local-conv-1", "--format", form).out
        only = json.loads(out)["messages"][0] if form == "json" else json.loads(out.splitlines()[1])
        thinking, image, called = only["message"]["data"]["content"]
        assert (thinking["thinkingSignature"], image["data"]) == (TOKEN, picture)
        assert TOKEN not in thinking["thinking"]
        assert called["id"] == parts[2]["id"]
    page = cli("export", "local-conv-1", "--format", "html").out
    assert f'src="data:image/png;base64,{picture}' in page


def test_a_file_gets_its_form_from_its_name(demo: Cli, tmp_path: Path) -> None:
    starts = {"a.md": "# ", "a.html": "<!doctype html>", "a.json": '{"format"', "a.txt": "# "}
    starts["a.jsonl"] = '{"format"'
    for name, start in starts.items():
        path = tmp_path / name
        outcome = demo("export", "local-conv-1", "-o", path)
        assert (outcome.code, outcome.out) == (0, f"Wrote {path}\n")
        assert path.read_text(encoding="utf-8").startswith(start)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        given = demo("export", "local-conv-1", "--format", path.suffix[1:].replace("txt", "md"))
        assert given.out == path.read_text(encoding="utf-8")
    report = demo("export", "local-conv-1", "-o", tmp_path / "a.md", "--json").json
    assert report == {
        "file": str(tmp_path / "a.md"),
        "format": "md",
        "conversation": report["conversation"],
        "redacted": 0,
    }


def test_the_same_conversation_gives_the_same_file(demo: Cli) -> None:
    for form in FORMS:
        one, two = (demo("export", "local-conv-1", "--format", form, "-o", "-") for _ in "12")
        assert one.out == two.out
        assert one.err == "lettaspace: no secrets were found\n"


def test_forms_agree_with_show(demo: Cli) -> None:
    shown = demo("show", "local-conv-1", "--json").json
    whole = demo("export", "local-conv-1", "--format", "json", "--no-redact").json
    assert whole["messages"] == shown["messages"]
    assert whole["conversation"] == shown["conversation"]
    assert whole["prompt"] == demo("prompt", "local-conv-1", "--json").json
    window = demo("export", "local-conv-1", "--format", "json", "--no-redact", "--window").json
    assert window["messages"] == demo("show", "local-conv-1", "--window", "--json").json["messages"]


@pytest.mark.parametrize("form", FORMS)
def test_any_locale_gives_utf_8(demo_home: Path, form: str) -> None:
    start = ["--home", str(demo_home), "export", "local-conv-2", "--format", form]
    outcome = process(*start, env={"PYTHONIOENCODING": "ascii"})
    assert (outcome.code, outcome.err) == (0, "lettaspace: no secrets were found\n")
    wanted = "天目釉" if form in ("md", "html") else "\\u5929\\u76ee\\u91c9"
    assert wanted in outcome.out


def test_a_failure_leaves_the_old_file(
    demo: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(space: Space, conversation: str) -> Any:
        yield from list(original(space, conversation))[:3]
        raise KeyError("a secret")

    original = Space.transcript
    path = tmp_path / "talk.md"
    path.write_text("old")
    monkeypatch.setattr(Space, "transcript", fails)
    outcome = demo("export", "local-conv-1", "-o", path, "--json")
    assert (outcome.code, outcome.json["error"]) == (1, "Unexpected")
    assert "secret" not in outcome.err
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    outcome = demo("export", "local-conv-1", "--json")
    assert outcome.code == 1
    assert '"error"' not in outcome.out  # part of the export is there already


def test_places_where_nothing_can_be_written(demo: Cli, demo_home: Path, tmp_path: Path) -> None:
    for path, error in (
        (tmp_path, "InvalidInput"),
        (tmp_path / "none" / "talk.md", "StoreUnavailable"),
        (demo_home / "space.db", "InvalidInput"),
        (demo_home / "space.db-wal", "InvalidInput"),
        (Path(os.devnull), "InvalidInput"),
    ):
        outcome = demo("export", "local-conv-1", "-o", path, "--json")
        assert (outcome.code, outcome.json["error"]) == (1, error)
        assert len(outcome.err.splitlines()) == 1
    assert demo("verify").code == 0


def test_an_archive_of_the_space(demo: Cli, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "all.car"
    report = demo("export", "--space", path, "--json").json
    assert report["archive"] == str(path)
    assert report["bytes"] == path.stat().st_size
    people = demo("export", "--space", path)
    assert people.code == 0
    assert people.out.startswith("Archived ")
    assert cli("import", path).code == 0
    assert len(cli("conversations", "--json").json) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["local-conv-1", "--space", "x.car"],
        ["--space", "x.car", "--window"],
        ["--space", "x.car", "-o", "y"],
        ["local-conv-1", "--format", "pdf"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line(demo: Cli, arguments: list[str]) -> None:
    outcome = demo("export", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert not Path("x.car").exists()


def test_a_conversation_that_is_not_there(demo: Cli, tmp_path: Path) -> None:
    outcome = demo("export", "nobody", "-o", tmp_path / "x.md", "--json")
    assert (outcome.code, outcome.json["error"]) == (1, "NotFound")
    assert list(tmp_path.iterdir()) == []


def test_o42_o41_b1_in_every_form(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    store.conversation(rows(b1()))
    with Space.open(home) as space:
        import_directory(space, store.path)
    for form in FORMS:
        out = cli("export", "local-conv-1", "--format", form).out
        at = 0
        for word in ("List the jars.", "Looking.", "call_A1" if form != "html" else "ls", "plum"):
            at = out.index(word, at)
        assert "Two jars: plum and fig." in out[at:]
    lines = cli("export", "local-conv-1", "--format", "jsonl").out.splitlines()
    messages = [json.loads(line) for line in lines[1:]]
    assert [each["message"]["data"] for each in messages] == b1()
    assert [each["role"] for each in messages] == ["user", "assistant", "toolResult", "assistant"]
    assert messages[0]["createdAt"] == "2024-03-05T10:00:01.000Z"


def test_a_prompt_that_is_lost_hides_nothing(cli: Cli, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "letta")
    store.agent()
    large = "語" * 66_667
    store.conversation(rows(b1()), prompt=prompt(content=large, coreMemory="x"))
    with Space.open(home) as space:
        import_directory(space, store.path)
    for form in FORMS[:3]:
        out = cli("export", "local-conv-1", "--format", form, "--no-redact").out
        assert (large in out) is (form != "json")
    with Space.open(home) as space, space.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs")
    for form in FORMS[:3]:
        for flag in ([], ["--no-redact"]):
            outcome = cli("export", "local-conv-1", "--format", form, *flag)
            assert outcome.code == 0
            assert "Two jars: plum and fig." in outcome.out
            assert "unreadable" in outcome.out or "It cannot be read: " in outcome.out
            assert ("bafk" in outcome.out) is (flag != [])


def test_a_wide_fan_of_results(cli: Cli, home: Path) -> None:
    """More results than are kept waiting for their calls are all there."""
    with Space.open(home) as space:
        talk = Talk(space)
        calls = [call(f"c{number}", "ls", {}) for number in range(300)]
        talk.add("calls", 1, role="assistant", content=calls)
        for number in range(300):
            fields = {"role": "toolResult", "toolCallId": f"c{number}"}
            talk.add(f"result {number}.", number + 2, **fields)
        name = talk.rkey
    for form in ("md", "html"):
        out = cli("export", name, "--format", form).out
        assert all(out.count(f"result {number}.") == 1 for number in range(300))
