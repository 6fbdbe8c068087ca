"""A command with a terminal of its own, as on a Mac: its warden leads the session, and makes the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from macbox import fake_sandbox_exec

from conftest import Place
from mac import PRETEND
from mudroom.sandbox.host.process_table import rows
from screen import BASH, Screen, Shell

DRIVER = """{pretend}
import os, sys
sys.path[:0] = {path!r}
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import PLATFORM as DARWIN
from mudroom.session import Session, Stdio
client = DarwinClient(tool={tool!r})
with Session.open(
    {project!r}, state={state!r}, home={home!r}, environ=os.environb, platform=DARWIN, client=client,
) as session:
    stdio = Stdio(0, 1, 2, terminal=True)
    result = session.run([os.fsencode(word) for word in sys.argv[1:]], fork="f", stdio=stdio)
client.close()
sys.exit(result.exit_code)
"""


@pytest.fixture
def driver(place: Place, tmp_path: Path) -> str:
    """A program that runs its words as on a Mac."""
    path = tmp_path / "driver.py"
    text = DRIVER.format(
        pretend=PRETEND,
        path=sys.path,
        tool=fake_sandbox_exec(tmp_path),
        project=bytes(place.project),
        state=bytes(place.state),
        home=bytes(place.home),
    )
    path.write_text(text)
    return str(path)


Run = Callable[..., Screen]


@pytest.fixture
def run(place: Place, driver: str) -> Run:
    return lambda script: Screen(place, sys.executable, driver, "sh", "-c", script, rows=31, columns=97)


def test_it_is_a_terminal_and_answers(run: Run) -> None:
    screen = run('test -t 0 && test -t 1 && test -t 2 && stty size; read word; echo "got $word"; exit 4')
    screen.expect("31 97")
    screen.type("hello\n")
    screen.expect("got hello")
    assert screen.exit_code() == 4


@pytest.mark.deep
def test_keys_are_signals_of_the_command(run: Run) -> None:
    screen = run("trap 'echo interrupted; exit 7' INT; echo up; while :; do sleep 0.1; done")
    screen.expect("up")
    screen.type("\x03")
    screen.expect("interrupted")
    assert screen.exit_code() == 7


@pytest.mark.deep
def test_it_is_told_of_a_new_size(run: Run) -> None:
    screen = run("trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.1; done")
    screen.expect("up")
    screen.resize(40, 120)
    screen.expect("40 120")
    assert screen.exit_code() == 0


@pytest.mark.skipif(not BASH, reason="there is no bash")
def test_it_is_stopped_and_goes_on(place: Place, driver: str) -> None:
    outside = Shell(place)
    outside.type(f"{sys.executable} {driver} sh -c 'echo up; read word; echo \"got $word\"'\n")
    outside.expect("\nup\r\n")  # not the line that was typed
    outside.type("\x1a")
    outside.expect("Stopped")
    outside.prompt()
    outside.type("fg\n")
    outside.type("again\n")
    outside.expect("got again")
    outside.prompt()
    outside.type("exit\n")
    assert outside.exit_code() == 0


@pytest.mark.deep
def test_what_it_leaves_behind_ends(run: Run) -> None:
    screen = run("sleep 1003 & echo left $!; trap '' HUP; sleep 1004 & echo also $!; exit 0")
    first, second = int(screen.expect(r"left (\d+)")[1]), int(screen.expect(r"also (\d+)")[1])
    assert screen.exit_code() == 0
    assert {first, second} & {row[0] for row in rows()} == set()
