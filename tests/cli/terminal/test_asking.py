"""Whether a host is allowed, asked in a terminal while a command runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from conftest import Place
from screen import BASH, Screen

pytestmark = pytest.mark.skipif(not BASH, reason="there is no bash")

ASK = """
import socket, sys
for host in sys.argv[1:]:
    gate = socket.create_connection(("127.0.0.1", 3128))
    gate.sendall(b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" % host.encode())
    print("half a line", end="", flush=True)
    print(" told:", gate.makefile().readline().strip(), flush=True)
"""
"""Of the gate itself."""
NOBODY = "nobody.invalid"
"""Never looked up: it is not allowed."""


def of_this_machine() -> str:
    """A name that is looked up without a network, and never dialled. Not localhost: nobody is asked about that."""
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    rows = [line.partition("#")[0].split() for line in hosts.splitlines()]
    names = [name for row in rows if row and row[0].startswith(("127.", "::1")) for name in row[1:]]
    return next((name for name in names if not name.startswith("localhost")), "")


MACHINE = of_this_machine()
needs_a_name = pytest.mark.skipif(not MACHINE, reason="this machine has no name but localhost in /etc/hosts")


def run(place: Place, *hosts: str, words: tuple[str, ...] = ()) -> Screen:
    (place.project / "ask.py").write_text(ASK)
    command = [sys.executable, "-m", "mudroom", "run", "--no", *words, "--", sys.executable, "ask.py", *hosts]
    return Screen(place, *command, columns=300)


def answers(place: Place) -> str:
    file = place.answers / "permissions.yaml"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return "".join(line for line in lines if not line.startswith("#"))


@pytest.mark.parametrize(
    ("key", "host", "told", "kept"),
    [
        ("n", NOBODY, "403", ""),
        ("N", NOBODY, "403", "deny"),
        pytest.param("o", MACHINE, "403.*address of this machine", "", marks=needs_a_name),
        pytest.param("a", MACHINE, "403.*address of this machine", "allow", marks=needs_a_name),
    ],
)
def test_the_answers(place: Place, key: str, host: str, told: str, kept: str) -> None:
    screen = run(place, f"{host}:443", f"{host}:443")
    question = screen.expect(rf"Allow {host}\?.*\[N\]ever  then Enter\r\n")
    assert b"told" not in question.group()
    screen.type(key + "\n")
    screen.expect(f"told: HTTP/1.1 {told}.*told: HTTP/1.1 {told}")
    assert b"Allow" not in screen.seen, "asked once"
    assert screen.exit_code() == 0
    assert answers(place).split("  #")[0].replace('"', "") == (f"{kept}:\n  - {host}:443" if kept else "")
    if kept:
        assert " # asked 20" in answers(place)


def test_the_question_says_which_uploads_a_known_host_takes(place: Place) -> None:
    screen = run(place, "registry.npmjs.org:443")
    screen.expect(r"registry\.npmjs\.org: it takes packages of any account.*Allow registry\.npmjs\.org\?.*Enter\r\n")
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0


def test_what_was_typed_before_the_question_is_no_answer(place: Place) -> None:
    (place.project / "early.sh").write_text(f"read line; {sys.executable} ask.py {NOBODY}:443")
    (place.project / "ask.py").write_text(ASK)
    screen = Screen(place, sys.executable, "-m", "mudroom", "run", "--no", "--", BASH, "early.sh", columns=300)
    screen.type("a\na\na\n")
    screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert answers(place) == ""


@pytest.mark.parametrize(("wrong", "shown"), [("x", "x"), ("", "nothing"), ("yes\x01", "yes.*")])
def test_a_wrong_key_is_asked_about_once_more(place: Place, wrong: str, shown: str) -> None:
    screen = run(place, f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    screen.type(f"{wrong}\n")
    screen.expect(rf"{shown} is no answer. o: allow it, this once; .*; then Enter\r\n")
    assert b"told" not in screen.seen
    screen.type("N\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert answers(place).split("  #")[0].replace('"', "") == f"deny:\n  - {NOBODY}:443"


def test_a_second_wrong_key_refuses(place: Place) -> None:
    screen = run(place, f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    screen.type("x\n")
    screen.expect("x is no answer. o: allow it, this once; .*; then Enter\r\n")
    screen.type("z\n")
    screen.expect(f"no answer: {NOBODY} is refused to this command.*told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert answers(place) == ""


def test_lines_behind_a_wrong_key_are_no_answer(place: Place) -> None:
    screen = run(place, f"{NOBODY}:443")
    screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    screen.type("x\na\na\n")
    screen.expect("x is no answer. o: allow it, this once; .*; then Enter\r\n")
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403")
    assert screen.exit_code() == 0
    assert answers(place) == ""


def test_ctrl_c_is_no_and_the_commands_as_well(place: Place) -> None:
    screen = run(place, f"{NOBODY}:443", f"{NOBODY}:22")
    screen.expect(rf"Allow {NOBODY}\?.*\r\n")
    screen.type("\x03")
    screen.expect(f"no answer: {NOBODY} is refused to this command")
    assert screen.exit_code() in (1, 128 + signal.SIGINT), "Python says KeyboardInterrupt and ends"
    assert answers(place) == ""


def test_nobody_is_asked_where_nobody_can_answer(place: Place) -> None:
    screen = run(place, f"{NOBODY}:443", words=("--json",))
    screen.expect("nobody is there to be asked")
    assert b"Allow" not in screen.seen
    assert screen.exit_code() == 0


def test_the_rest_of_a_terminal_is_as_before(place: Place) -> None:
    """The command's own line editing goes on: raw mode is entered again after the answer."""
    (place.project / "ask.py").write_text(ASK)
    script = f"{sys.executable} ask.py {NOBODY}:443; stty -a | grep -o '[-]*icanon'; read line; echo got $line"
    screen = Screen(place, sys.executable, "-m", "mudroom", "run", "--no", "--", BASH, "-c", script, columns=300)
    screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n")
    screen.type("n\n")
    screen.expect("told: HTTP/1.1 403.*icanon\r\n")
    screen.type("this\n")
    screen.expect("got this")
    assert screen.exit_code() == 0


EARLY = """
import os, select, sys
from mudroom.cli.terminal import asking, command_approver
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.network.flow import FlowQuestion
from test_approve_verb import QUESTION
wait = asking.poll_readable
def pause(others, seconds):
    if seconds != asking.SETTLE:
        return wait(others, seconds)
    print("paused", flush=True)
    select.select([0], [], [])
asking.poll_readable = pause
terminal, never = Terminal(os.environb), os.pipe()[0]
if sys.argv[1] == "host":
    print("ANSWER", asking.by_terminal(terminal, FlowQuestion(1, "late.example", 22, "tls"), never))
else:
    print("ANSWER", command_approver.by_terminal(terminal)(QUESTION))
"""
"""A prompt whose first pause ends once a line was typed."""


@pytest.mark.parametrize("kind", ["host", "command"])
def test_a_key_that_is_typed_as_the_question_appears_does_not_count(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    screen = Screen(place, sys.executable, "-c", EARLY, kind, columns=300)
    assert b"[o]nce" not in screen.expect("paused").group(), "the keys are shown when they count"
    screen.type("o\n")
    screen.expect(r"\[o\]nce.*then Enter\r\n")
    screen.type("?\n")
    screen.expect(r"\? is no answer\. o: allow it, this once; .*n: refuse it, this once.*\r\n")
    screen.type("n\n")
    screen.expect(r"ANSWER \w+Answer\(allow(ed)?=False")
    assert screen.exit_code() == 0
