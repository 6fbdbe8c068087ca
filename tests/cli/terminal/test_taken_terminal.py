"""A full-screen program owns the terminal: questions wait elsewhere, and a sign says so. Nothing is drawn over it."""

from __future__ import annotations

import sys

import pytest

from conftest import Place
from screen import BASH, Screen
from test_approve_verb import Approving
from test_asking import NOBODY

pytestmark = [pytest.mark.both_users, pytest.mark.skipif(not BASH, reason="there is no bash")]

FULL_SCREEN = """
import os, select, socket, sys, termios, tty
before = termios.tcgetattr(0)
def show(text):
    os.write(1, text.encode())
def enter():
    tty.setraw(0)
    show("\\x1b[?1049h\\x1b[Hdrawn ")
def reach(host):
    gate = socket.create_connection(("127.0.0.1", 3128))
    gate.sendall(b"CONNECT %s HTTP/1.0\\r\\n\\r\\n" % host.encode())
    return gate
hosts = sys.argv[1:]
enter()
open_gates = [reach(host) for host in hosts]
while open_gates:
    for ready in select.select([0, *open_gates], [], [])[0]:
        if ready == 0:
            key = os.read(0, 100).decode()
            show(f"key {key!r} ")
            if key == "t":
                show("\\x1b]2;title of its own\\x07")
            if key == "q":
                open_gates.clear()
        else:
            open_gates.remove(ready)
            show("told " + ready.recv(12).decode() + " ")
show("\\x1b[?1049l")
termios.tcsetattr(0, termios.TCSANOW, before)
"""
PUSH, POP, BELL = "\x1b[22;0t", "\x1b[23;0t", "\x07"
TITLE = f"\x1b]0;mudroom: allow {NOBODY}? (mudroom approve){BELL}"


@pytest.fixture
def cli(place: Place) -> Approving:
    place.write("full.py", FULL_SCREEN)
    return Approving(place)


def full_screen(place: Place, *words: str, columns: int = 300, verb: tuple[str, ...] = ("run", "--no")) -> Screen:
    return Screen(
        place, sys.executable, "-m", "mudroom", *verb, "--", sys.executable, "full.py", *words, columns=columns
    )


def literally(text: str) -> str:
    return "".join(f"\\x{ord(letter):02x}" for letter in text)


@pytest.mark.parametrize("verb", [("run", "--no"), ("run", "--no", "--ask", "terminal"), ("exec", "--fork", "a")])
def test_nothing_is_drawn_and_no_key_is_taken(cli: Approving, verb: tuple[str, ...]) -> None:
    screen = full_screen(cli.place, f"{NOBODY}:443", verb=verb)
    first = screen.expect(f"drawn .*{literally(PUSH + TITLE + BELL)}").group().decode()
    screen.type("n")
    screen.expect("key 'n' ")
    screen.type("\x1a\r")
    second = screen.expect("key .*x1a.*r' ").group().decode()
    assert "Allow" not in first + second and "always" not in first + second
    assert cli("approve", cli.waiting(screen), "--deny").returncode == 0
    last = (
        screen.expect(rf"told HTTP/1.1 403.*refused: {NOBODY}:443: asked, and refused by mudroom approve")
        .group()
        .decode()
    )
    assert POP in last and "Allow" not in last
    assert screen.exit_code() == 0


def test_the_bell_rings_once_for_what_waits(cli: Approving) -> None:
    screen = full_screen(cli.place, "one.invalid:443", "two.invalid:443", "three.invalid:443")
    seen = screen.expect(literally("3 questions wait (mudroom approve)" + BELL)).string.decode()
    assert seen.count(PUSH) == 1
    assert seen.replace("(mudroom approve)\x07", "").count(BELL) == 1
    for row in cli.queue.rows():
        cli.queue.decide(row.name, allow=False, by="page")
    rest = screen.expect("(told HTTP/1.1 403.*){3}changed nothing").string.decode()  # POP may come before the first
    assert rest.count(POP) == 1 and PUSH not in rest
    assert screen.exit_code() == 0


def test_a_title_that_the_program_sets_is_its_own_afterwards(cli: Approving) -> None:
    screen = full_screen(cli.place, f"{NOBODY}:443")
    screen.expect(literally(TITLE))
    screen.type("t")
    screen.expect("title of its own")
    cli.queue.decide(cli.waiting(screen), allow=False, by="page")
    screen.expect(literally(f"{POP}\x1b]0;title of its own{BELL}"))
    assert screen.exit_code() == 0


def test_the_sign_goes_with_the_command(cli: Approving) -> None:
    """It ends while its question waits: what was refused is named, with the command that allows it."""
    screen = full_screen(cli.place, f"{NOBODY}:443")
    screen.expect(literally(TITLE))
    name = cli.waiting(screen)
    screen.type("q")
    screen.expect(rf"{literally(POP)}.*refused: {NOBODY}:443: .*mudroom net allow {NOBODY}")
    assert screen.exit_code() == 0
    assert cli.row(name).state == "withdrawn"


TAKES = """
import os, socket, termios, time, tty
if os.fork():
    gate = socket.create_connection(("127.0.0.1", 3128))
    gate.sendall(b"CONNECT nobody.invalid:443 HTTP/1.0\\r\\n\\r\\n")
    print("told", gate.recv(12).decode(), end="\\r\\n", flush=True)
else:
    open("ready", "w").close()
    while not os.path.exists("go"):
        pass
    tty.setraw(0)
"""


def test_a_question_moves_when_a_program_takes_the_terminal(cli: Approving) -> None:
    cli.place.write("takes.py", TAKES)
    words = ["run", "--no", "--view", "copy", "--", sys.executable, "takes.py"]
    screen = Screen(cli.place, sys.executable, "-m", "mudroom", *words, columns=300)
    screen.expect(rf"Allow {NOBODY}\?")
    first = cli.waiting(screen)
    screen.until(lambda: bool(list(cli.place.state.glob("vaults/*/forks/*/copy/work/ready"))))
    (ready,) = cli.place.state.glob("vaults/*/forks/*/copy/work/ready")
    (ready.parent / "go").write_text("")
    screen.expect(literally(TITLE))
    second = cli.waiting(screen)
    assert cli.row(first).state == "withdrawn" and second != first
    cli.queue.decide(second, allow=False, by="page")
    screen.expect("told HTTP/1.1 403")
    assert screen.exit_code() == 0


def test_a_narrow_terminal(cli: Approving) -> None:
    script = "import socket; g = socket.create_connection(('127.0.0.1', 3128)); " \
        f"g.sendall(b'CONNECT {NOBODY}:443 HTTP/1.0\\r\\n\\r\\n'); print(g.recv(12))"  # fmt: skip
    words = ["run", "--no", "--", sys.executable, "-c", script]
    screen = Screen(cli.place, sys.executable, "-m", "mudroom", *words, columns=20)
    shown = screen.expect(rf"Allow {NOBODY}\?.*then Enter\r\n").group().decode().replace("\x1b[0m", "")
    assert shown.splitlines()[1:] == ["[o]nce", "[a]lways for this project", "[n]o", "[N]ever", "then Enter"]
    screen.type("n\n")
    screen.expect("HTTP/1.1 403")
    assert screen.exit_code() == 0


def test_a_narrow_terminal_that_is_taken(cli: Approving) -> None:
    screen = full_screen(cli.place, f"{NOBODY}:443", columns=20)
    screen.expect(literally(TITLE))
    cli.queue.decide(cli.waiting(screen), allow=False, by="page")
    screen.expect("told HTTP/1.1 403")
    assert screen.exit_code() == 0
