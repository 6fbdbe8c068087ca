"""Messages of verbs on a machine, a terminal or in a place where they cannot do their work, as a user meets them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from conftest import Place
from mudroom.cli.command import background
from mudroom.cli.main import run
from mudroom.ext.certify.cli import certify
from screen import Screen

Told = Callable[..., str]


@pytest.fixture
def told(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Told]:
    """Run a line in the project, and return its message."""
    place.write("a", "1\n")
    monkeypatch.chdir(place.project)
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}

    def ran(line: str, code: int = 125, **more: str) -> str:
        environ = {os.fsencode(name): os.fsencode(str(value)) for name, value in {**variables, **more}.items()}
        assert run(shlex.split(line), environ) == code, capfd.readouterr().err
        return capfd.readouterr().err

    yield ran


def terminal_lines(place: Place, *lines: str) -> str:
    """Run lines on a terminal wide enough for each message, and return what is said."""
    mudroom = f"{shlex.quote(sys.executable)} -m mudroom"
    screen = Screen(place, "sh", "-c", "; ".join(f"{mudroom} {line}" for line in lines) + "; echo END", columns=400)
    seen = screen.expect("END").string.decode().replace("\r\n", "\n")
    assert screen.exit_code() == 0
    return re.sub(r"\x1b\[\d*m", "", seen).removesuffix("END\n")


def test_a_protocol_is_not_for_a_person(place: Place) -> None:
    assert terminal_lines(place, "vault export f -", "vault import -") == (
        "mudroom: stdout is a terminal, which an archive cannot go through (mudroom vault export f f.tar.gz)\n"
        "mudroom: stdin is a terminal, which an archive cannot go through "
        "(mudroom vault export FORK - | mudroom vault import -)\n"
    )


def test_a_try_is_no_fork(told: Told) -> None:
    told("try -n 1 -- true", code=0)
    assert told("try show t1 9") == "mudroom: t1 has no attempt 9 (mudroom try show t1)\n"


def test_another_system(told: Told, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (background, certify):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform="plan9"))
    assert told("exec --background -- true") == (
        "mudroom: a command in the background needs namespaces that others can join; found: plan9, which has none\n"
    )
    nothing = "nothing can be tried on plan9 yet (mudroom doctor tries what is protected here)"
    assert told("doctor --certify") == f"mudroom: {nothing}\n"


def test_the_holder_of_a_background_command_is_killed(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, where memory is short."""
    monkeypatch.setattr(background, "_run_keeper", lambda *_words: os.kill(os.getpid(), signal.SIGKILL))
    assert told("exec --background -- true") == (
        "mudroom: the process that was to hold the command has died (run the command again)\n"
    )
