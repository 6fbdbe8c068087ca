"""Messages of verbs on a machine, a terminal or in a place where they cannot do their work, as a user meets them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import Place
from mudroom.cli.command import background
from mudroom.cli.main import run
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.cli import shell_shim
from mudroom.ext.certify.cli import certify
from mudroom.ext.fleet.cli.fleet_run import write_raw
from mudroom.ext.web.cli import page_server
from mudroom.ext.web.cli.new_project import open_folder
from screen import Screen
from whole_text import whole

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


def test_a_protocol_is_not_for_a_person(place: Place) -> None:
    """On a terminal wide enough for each message."""
    mudroom = f"{shlex.quote(sys.executable)} -m mudroom"
    lines = ("mcp", "worker --stdio", "vault export f -", "vault import -")
    screen = Screen(place, "sh", "-c", "; ".join(f"{mudroom} {line}" for line in lines) + "; echo END", columns=400)
    seen = screen.expect("END").string.decode().replace("\r\n", "\n")
    assert screen.exit_code() == 0
    assert re.sub(r"\x1b\[\d*m", "", seen) == (
        "mudroom: mudroom mcp speaks a protocol on its standard input, and that is a terminal "
        "(claude mcp add mudroom -- mudroom mcp lets a client start it)\n"
        "mudroom: mudroom worker speaks a protocol on its standard input, and that is a terminal "
        "(an origin starts it: mudroom fleet add NAME -- ssh HOST mudroom worker --stdio)\n"
        "mudroom: stdout is a terminal, which an archive cannot go through (mudroom vault export f f.tar.gz)\n"
        "mudroom: stdin is a terminal, which an archive cannot go through "
        "(mudroom vault export FORK - | mudroom vault import -)\n"
        "END\n"
    )


def test_inside_a_sandbox(told: Told) -> None:
    assert told("mcp", MUDROOM="1") == (
        "mudroom: mudroom mcp runs inside mudroom, where its forks would be lost with the sandbox "
        "(the client's own commands and edits are staged already: leave the server out)\n"
    )
    assert told("worker --stdio", MUDROOM="1") == (
        "mudroom: mudroom worker runs inside mudroom, where its forks would be lost with the sandbox "
        "(start it outside of any sandbox)\n"
    )


def test_a_try_is_no_fork(told: Told) -> None:
    told("try -n 1 -- true", code=0)
    assert told("review t1 --json") == "mudroom: t1 is a try, not a fork (mudroom try show t1 --json)\n"
    assert told("try show t1 9") == "mudroom: t1 has no attempt 9 (mudroom try show t1)\n"


def test_another_system(told: Told, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (background, certify):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform="plan9"))
    assert told("exec --background -- true") == (
        "mudroom: a command in the background needs namespaces that others can join; found: plan9, which has none\n"
    )
    nothing = "nothing can be tried on plan9 yet (mudroom doctor tries what is protected here)"
    assert told("certify") == f"mudroom: {nothing}\n"


def test_the_page_on_windows_starts_nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "sys", SimpleNamespace(platform="win32"))
    told = "no command runs in the background on Windows (mudroom exec --fork f -- COMMAND)"
    with pytest.raises(MudroomError, match=whole(told)):
        page_server._start(cast(Any, None), b"/p", "f", (b"true",), None)


def test_the_holder_of_a_background_command_is_killed(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, where memory is short."""
    monkeypatch.setattr(background, "_run_keeper", lambda *_words: os.kill(os.getpid(), signal.SIGKILL))
    assert told("exec --background -- true") == (
        "mudroom: the process that was to hold the command has died (run the command again)\n"
    )


def test_a_machine_without_a_shell(told: Told, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image without one."""
    monkeypatch.setattr(shell_shim, "_DIRECTORIES", ("/nowhere/bin", "/nowhere/sbin"))
    assert told(f"shell-shim {place.root}/shims") == (
        "mudroom: no shell is installed in /nowhere/bin, /nowhere/sbin (install bash, or dash)\n"
    )


def test_an_output_that_is_full() -> None:
    with open("/dev/full", "wb", buffering=0) as stream:
        told = "the output cannot be written: No space left on device"
        with pytest.raises(MudroomError, match=whole(told)):
            write_raw(stream.fileno(), b"output of an errand\n")


def test_a_path_that_is_written_in_another_way(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / "x").mkdir()
    with (
        pytest.raises(UsageError, match=whole(f"{tmp_path}//x is not a normalised path (write {tmp_path}/x)")),
        open_folder([root], root + b"//x"),
    ):
        pass
