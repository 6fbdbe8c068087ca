"""``mudroom comment``: remarks as a user writes, lists and settles them, and the files that a script may write."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from conftest import Place
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users

APP = "import os\n\n\ndef total(items):\n    return sum(items)\n\n\ndef first(items):\n    return items[0]\n"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/app.py", APP)
    place.write("old.txt", "one\ntwo\nthree\n")
    place.write(".env", "KEY=secret-value-of-the-user\n")
    cli = Cli(place)
    work(cli, "sed -i 's/sum(items)/sum(i.cost for i in items)/' src/app.py; echo new > new.txt; sed -i 2d old.txt")
    return cli


def work(cli: Cli, script: str) -> None:
    done = cli("exec", "--fork", "a", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr


def said(cli: Cli, *words: str, code: int = 0) -> str:
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def remarks(cli: Cli) -> dict[str, Any]:
    return {row["name"]: row for row in cli.json("comment", "a")["remarks"]}


def folder(cli: Cli) -> Path:
    (found,) = cli.place.state.glob("vaults/*/forks/a")
    return found / "remarks"


def content(cli: Cli, path: str) -> str:
    return cli("exec", "--fork", "a", "--", "cat", path).stdout


# --- writing and listing ---


def test_remarks_at_lines_files_and_the_whole_are_listed_with_their_threads(cli: Cli) -> None:
    assert "r1: mudroom send a hands it" in said(cli, "comment", "a", "src/app.py:5", "why cost?")
    said(cli, "comment", "a", "src/app.py:8-9", "two\nlines", "--suggest", "def first(items):\n    return items[:1]")
    said(cli, "comment", "a", "new.txt", "what is it for?")
    said(cli, "comment", "a", "add a test")
    said(cli, "comment", "a", "old.txt:2", "keep it", "--old")
    said(cli, "comment", "a", "--answer", "r1", "and what is i?")
    assert said(cli, "comment", "a") == (
        "r1  src/app.py:5  (not sent)\n    > why cost?\n    > and what is i?\n"
        "r2  src/app.py:8-9  (not sent)\n    > two\n    > lines\n    + def first(items):\n    +     return items[:1]\n"
        "r3  new.txt  (not sent)\n    > what is it for?\n"
        "r4  the whole  (not sent)\n    > add a test\n"
        "r5  old.txt:2 (removed)  (not sent)\n    > keep it\n"
        "5 remarks not sent: mudroom send a\n"
    )
    rows = remarks(cli)
    assert rows["r1"]["lines"] == ["    return sum(i.cost for i in items)"]
    assert (rows["r5"]["side"], rows["r5"]["lines"]) == ("old", ["two"])
    said(cli, "comment", "a", "--settle", "r1")
    said(cli, "comment", "a", "--remove", "r3")
    assert "r1  src/app.py:5  (settled)" in said(cli, "comment", "a") and "r3" not in remarks(cli)
    said(cli, "comment", "a", "--reopen", "r1")
    assert remarks(cli)["r1"]["unsent"]


def test_remarks_are_carried_along_with_their_lines(cli: Cli) -> None:
    said(cli, "comment", "a", "src/app.py:5", "changed later")
    said(cli, "comment", "a", "src/app.py:9", "moves down")
    said(cli, "comment", "a", "src/app.py:1", "goes")
    said(cli, "comment", "a", "new.txt:1", "its file goes")
    work(cli, "sed -i -e 's/i.cost/i.price/' -e '/^import/d' -e '6a # three\\n# more\\n# lines' src/app.py; rm new.txt")
    found = {name: (row["where"], row["first"], row["last"]) for name, row in remarks(cli).items()}
    assert found == {
        "r1": ("answered", 4, 4),
        "r2": ("here", 11, 11),
        "r3": ("outdated", 1, 0),
        "r4": ("outdated", 1, 1),
    }
    listed = said(cli, "comment", "a")
    assert "r1  src/app.py:4  (not sent; the lines have changed)" in listed
    assert "r3  src/app.py:1  (not sent; the lines are gone)" in listed


def test_an_answer_to_changed_lines_is_about_the_lines_as_they_are(cli: Cli) -> None:
    said(cli, "comment", "a", "src/app.py:5", "why cost?")
    work(cli, "sed -i 's/i.cost/i.price/' src/app.py")
    assert remarks(cli)["r1"]["where"] == "answered"
    said(cli, "comment", "a", "--answer", "r1", "and now?")
    assert (remarks(cli)["r1"]["where"], remarks(cli)["r1"]["lines"]) == (
        "here",
        ["    return sum(i.price for i in items)"],
    )


def test_a_fork_that_runs_is_commented_on(cli: Cli) -> None:
    running = forked.popen(
        ["exec", "--fork", "a", "--", "sh", "-c", "echo up; cat"], cwd=cli.place.project, env=cli.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    said(cli, "comment", "a", "src/app.py:5", "meanwhile", "--suggest", "x")
    refused = said(cli, "comment", "a", "--take", "r1", code=125)
    assert "a command is running in a (take the suggestion when it has ended)" in refused
    assert "a command is running in a (mudroom send a --wait" in said(cli, "send", "a", code=125)
    running.communicate()
    assert remarks(cli)["r1"]["where"] == "here"


def test_two_writers_lose_no_remark(cli: Cli) -> None:
    writers = [
        forked.popen(
            ["comment", "a", f"remark {n}"], cwd=cli.place.project, env=cli.environment, stdin=subprocess.DEVNULL
        )
        for n in range(6)
    ]
    assert [writer.wait() for writer in writers] == [0] * 6
    assert {row["text"] for row in remarks(cli).values()} == {f"remark {n}" for n in range(6)}


# --- suggestions ---


@pytest.mark.parametrize(
    ("before", "lines", "suggestion", "after"),
    [
        ("a\nb\nc\n", "2", "x\ny", "a\nx\ny\nc\n"),
        ("a\nb\nc\n", "2-3", "", "a\n"),
        ("a\r\nb\r\nc\r\n", "2", "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\nb", "2", "x\n", "a\nx"),
    ],
)
def test_a_suggestion_is_put_into_the_fork(cli: Cli, before: str, lines: str, suggestion: str, after: str) -> None:
    work(cli, f"printf {json.dumps(before)} > t; chmod 751 t")
    said(cli, "comment", "a", f"t:{lines}", "better", "--suggest", suggestion)
    assert "its lines are in the fork" in said(cli, "comment", "a", "--take", "r1")
    mode, digits = cli("exec", "--fork", "a", "--", "sh", "-c", "stat -c %a t; od -An -v -tx1 t").stdout.split("\n", 1)
    assert (mode, bytes.fromhex(digits)) == ("751", after.encode())
    assert remarks(cli)["r1"]["settled"] and not (cli.place.project / "t").exists()


def test_a_suggestion_follows_its_lines_and_replaces_no_others(cli: Cli) -> None:
    said(cli, "comment", "a", "src/app.py:9", "all", "--suggest", "    return items")
    work(cli, "sed -i '1i # above' src/app.py")
    said(cli, "comment", "a", "--take", "r1")
    assert content(cli, "src/app.py").splitlines()[9] == "    return items"
    said(cli, "comment", "a", "src/app.py:6", "cost", "--suggest", "    return 0")
    work(cli, "sed -i 's/i.cost/i.price/' src/app.py")
    refused = said(cli, "comment", "a", "--take", "r2", code=125)
    assert "the lines of r2 are not as they were: src/app.py:6 (mudroom comment a shows" in refused
    assert "i.price" in content(cli, "src/app.py") and not remarks(cli)["r2"]["settled"]


# --- files that others write ---


def test_a_script_writes_a_remark_and_a_damaged_one_is_told_and_stays(cli: Cli) -> None:
    said(cli, "comment", "a", "first")
    there = folder(cli)
    (there / "mine.json").write_text('{"path": "src/app.py", "first": 5, "text": "by a script"}')
    damaged = {
        "bad.json": "{",
        "field.json": '{"text": "x", "colour": 1}',
        "path.json": '{"text": "x", "path": "../outside", "first": 1}',
        "lines.json": '{"text": "x", "path": "a", "first": 3, "last": 2}',
        "empty.json": '{"text": " "}',
        "newer.json": '{"text": "x", "format": 2}',
        "b@d.json": '{"text": "x"}',
        "round.json": '{"text": "x", "sent": {"round": 1, "told": 9, "state": "sent"}}',
    }
    for name, text in damaged.items():
        (there / name).write_text(text)
    (there / "link.json").symlink_to(cli.place.project / ".env")
    os.mkfifo(there / "pipe.json")
    listed = cli.json("comment", "a")
    assert [row["text"] for row in listed["remarks"]] == ["by a script", "first"]
    assert listed["remarks"][0]["lines"] == ["    return sum(i.cost for i in items)"]
    assert len(listed["damaged"]) == len(damaged) + 2
    assert "secret-value" not in json.dumps(listed)
    for line in listed["damaged"]:
        assert line in said(cli, "comment", "a").replace("note: ", "")
    assert {path.name for path in there.glob("*.json")} >= {*damaged, "link.json", "pipe.json", "mine.json"}
    said(cli, "comment", "a", "--settle", "mine")
    assert json.loads((there / "mine.json").read_text())["settled"]


def test_no_sandbox_reaches_the_remarks(cli: Cli) -> None:
    said(cli, "comment", "a", "for the agent only when it is sent")
    place = folder(cli) / "r1.json"
    ran = cli("exec", "--fork", "a", "--", "sh", "-c", f"cat {place}; echo x > {place}; ls {place.parent}")
    assert "for the agent" not in ran.stdout and ran.returncode != 0
    assert remarks(cli)["r1"]["text"] == "for the agent only when it is sent"


def test_a_secrets_lines_are_not_read(cli: Cli) -> None:
    refused = said(cli, "comment", "a", ".env:1", "rotate it", code=125)
    assert (
        ".env has no lines to show: it is a secret, large, or no text (mudroom comment a .env TEXT is about" in refused
    )
    said(cli, "comment", "a", ".env", "rotate it")
    (folder(cli) / "s.json").write_text('{"path": ".env", "first": 1, "text": "by a script", "suggestion": "KEY="}')
    assert ".env is a secret, which is not read (edit it in the project)" in said(
        cli, "comment", "a", "--take", "s", code=125
    )
    assert "secret-value" not in said(cli, "comment", "a", "--json") + said(cli, "send", "a", "--print")


def test_texts_of_removed_remarks_are_dropped(cli: Cli) -> None:
    said(cli, "comment", "a", "src/app.py:1", "x")
    said(cli, "comment", "a", "new.txt:1", "y")
    assert len(list((folder(cli) / "texts").iterdir())) == 2
    said(cli, "comment", "a", "--remove", "r1")
    assert len(list((folder(cli) / "texts").iterdir())) == 1
    for text in (folder(cli) / "texts").iterdir():
        text.write_text("something else\n")
    assert remarks(cli)["r2"]["where"] == "unknown"


def test_acting_characters_are_escaped(cli: Cli) -> None:
    said(cli, "comment", "a", "src/app.py:1", "a\x1b[2Jb\u202ec\rd", "--suggest", "e\x07\tf")
    listed = said(cli, "comment", "a")
    assert "a\\x1b[2Jb\\u{202e}c\\rd" in listed and "\x1b" not in listed and "e\\x07" in listed
    assert "\x1b" not in said(cli, "send", "a", "--print")


# --- bad input ---


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("src/app.py:5",), "the remark has no text (mudroom comment a src/app.py:5 TEXT)"),
        (("src/app.py:5", " "), "the remark cannot be kept: a text is empty"),
        (("src/app.py:99", "x"), "src/app.py has 9 lines, and none 99 (mudroom diff a)"),
        (("src/app.py:0", "x"), "0 are no lines (lines count from 1: 3, or 3-5)"),
        (("src/app.py:4-3", "x"), "4-3 are no lines"),
        (("none.py:1", "x"), "a has no file none.py (mudroom diff a --stat lists the changed ones)"),
        (("src", "x"), "src is a directory (name a file in it)"),
        (("src/app.py", "5", "x"), "3 words after the fork are too many (mudroom comment a src/app.py TEXT)"),
        (("src/app.py", "x", "--suggest", "y"), "--suggest is for lines"),
        (("x", "--old"), "--old is for lines"),
        (("src/app.py:1", "x", "--old", "--suggest", "y"), "a suggestion is for lines that the file has"),
        (("new.txt:1", "x", "--old"), "the original of new.txt has no lines to show"),
        (("--take", "r9"), "a has no remark r9 (mudroom comment a lists them)"),
        (("--settle", "r1", "x"), "--settle takes no text"),
        (("--answer", "r1"), "the answer has no text (mudroom comment a --answer r1 TEXT)"),
        (("--take", "r1", "--settle", "r1"), "--settle and --take are two actions"),
        (("src/app.py:1", "-", "--suggest", "-"), "standard input is the text or the suggestion"),
        (("\udcff",), "the text is not UTF-8 (mudroom comment FORK PATH:LINE TEXT)"),
        (("x" * 10_001,), "a text has more than 10,000 characters"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli("comment", "a", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    assert told in done.stderr
    assert remarks(cli) == {}


def test_no_remarks_and_no_suggestion(cli: Cli) -> None:
    assert "a has no remarks: mudroom comment a PATH:LINE TEXT" in said(cli, "comment", "a")
    said(cli, "comment", "a", "x")
    assert "r1 suggests no lines (mudroom comment a lists the remarks)" in said(
        cli, "comment", "a", "--take", "r1", code=125
    )
