"""Every door through which a text of a command leaves: names, contents, arguments and targets of links with escape
sequences, C1 controls, directions, NUL and bytes that are no UTF-8. A terminal gets none of them, and a machine gets
them escaped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import Place, environment
from forked import run
from mudroom.core.settings import Settings
from screen import Screen

pytestmark = pytest.mark.both_users

SIGNS = [
    b"\x1b]52;c;ZXZpbA==\x07", b"\x1b]8;;http://evil\x1b\\", b"\x1b[2J", b"\x1bP+q\x1b\\", b"\xc2\x9b2J", b"\x9b2J",
    b"\r", b"\x08", b"\x7f", "\u202e\u2066".encode(), "\u200b\u2028".encode(), b"\xff\xfe", b"\x05",
]  # fmt: skip
SHOWN = re.compile(r"\x1b\[[0-9;]*[mK]|\r\n|\r(?=[a-z\x1b]|\Z)")
"""What the program itself writes: colours, line ends of a terminal, and lines of progress. A sign of ``SIGNS`` has no
letter after its carriage return."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\u2066\udc80-\udcff]")
WRITE = """
import os, sys
for number, sign in enumerate(os.fsencode(word) for word in sys.argv[1:]):
    name = b"n%d" % number + sign.replace(b"/", b"-")
    os.mkdir(b"d" + name)
    for path in (name, b"d" + name + b"/" + name):
        open(path, "wb").write(b"old " + sign + b"\\n" + sign + b"\\n")
    os.symlink(b"/to" + sign, b"l" + name)
    os.rename("was%d" % number, b"w" + name)
    sys.stdout.buffer.write(sign + b"\\n")
open("zero", "wb").write(b"a\\0b\\n")
open("x.py", "wb").write(b"".join(sys.argv[1].encode() for _ in range(3)))
"""
NAME = os.fsdecode(b"x" + b"".join(SIGNS))
DOORS = [
    ["status"], ["ls"], ["diff", "f"], ["diff", "f", "--stat"], ["log"], ["ps"], ["policy", "why", "--", NAME],
    ["vault", "ls"], ["fork", "ls"], ["fork", "new", NAME], ["discard", NAME], ["diff", NAME], ["diff", "f", NAME],
    ["apply", "f", NAME], ["exec", "--fork", "f", "--", NAME], ["exec", "--fork", NAME, "--", "true"],
    ["rollback", "f", NAME], ["net", "allow", NAME], ["checkpoint", "f", NAME], ["keep"], ["keep", NAME],
    ["resolve", "f", NAME], [NAME], ["log", "--fork", NAME], ["undo", NAME], ["--" + NAME], ["apply", "f", "--yes"],
    ["status"], ["log"], ["undo", "--yes"], ["redo", "--yes"],
]  # fmt: skip
OBJECTS = [["status", "--json"], ["ls", "--json"], ["log", "--json"], ["diff", "f", "--json"], ["log", "export"]]


@pytest.fixture
def hostile(place: Place) -> Place:
    for number in range(len(SIGNS)):
        place.write(f"was{number}", "".join(f"{number} line {at}\n" for at in range(20)))
    session = place.session(Settings())
    result = session.run([b"/usr/bin/python3", b"-c", WRITE.encode(), *SIGNS], fork="f")
    assert result.exit_code == 0, result.stderr
    session.close()
    return place


def shown(place: Place, words: list[str]) -> str:
    screen = Screen(place, sys.executable, "-m", "mudroom", *words, rows=1000, columns=400, PAGER="cat")
    screen.exit_code()
    return screen.seen.decode("utf-8", "surrogateescape")


def test_a_terminal_gets_no_sign_of_a_command(hostile: Place) -> None:
    wrong = []
    for words in DOORS:
        text = SHOWN.sub("", shown(hostile, words))
        match = RAW.search(text)
        wrong += [(words, text[max(match.start() - 40, 0) : match.end() + 20])] if match else []
    assert wrong == []


def test_objects_are_ascii(hostile: Place) -> None:
    for words in OBJECTS:
        done = run(words, cwd=hostile.project, env=environment(hostile), stdin=subprocess.DEVNULL)
        assert done.returncode == 0, words
        text = done.stdout + done.stderr
        assert text.isascii() and RAW.search(text) is None, words
        for line in text.splitlines() if words[0] == "log" else [text]:
            json.loads(line)
