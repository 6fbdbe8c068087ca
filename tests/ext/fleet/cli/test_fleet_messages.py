"""The fleet's messages, each caused by what a user would type or write, or another machine send."""

from __future__ import annotations

import os
import shlex
from typing import Any

import pytest

from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.fleet.wire.message import Errand
from mudroom.ext.fleet.worker import link
from mudroom.ext.fleet.worker.stdio import private_directory
from test_messages_by_doing import Told, all_told, environ_of, refused

__all__ = ["all_told"]  # a fixture

LINES = {
    "fleet add": "fleet add needs a command, after -- (mudroom fleet --help)",
    "fleet logs": "fleet logs takes one name, 0 given (mudroom fleet --help)",
    "worker": "mudroom worker is started by an origin (mudroom fleet add NAME -- ssh HOST mudroom worker --stdio)",
    "fleet add big --jobs 0 -- true": "--jobs 0 is not a number of errands (1 to 1,000)",
    "fleet run -n 0 -- true": "-n 0: not a number of errands (1 to 10,000)",
    "fleet run --each . -- true": "--each .: Is a directory",
    "fleet run --retry 900 -- true": "--retry 900: not a number of times (0 to 100)",
    "worker --stdio --jobs 0": "--jobs 0 is not a number of commands (1 to 1,000)",
    "worker --stdio --gpus -1": "--gpus -1 is not a number of GPUs (0 to 1,024)",
    "fleet logs r9": "there is no errand r9 in this project (mudroom fleet runs lists them)",
    "run --on nosuch -- true": "there is no worker named nosuch (known are: big)",
}


def test_wrong_lines(place: Place, all_told: Told) -> None:
    assert run(["fleet", "add", "big", "--", "true"], environ_of(place)) == 0
    all_told(LINES)


ERRAND = Errand("abcdefgh", 1, b"d" * 32, (b"true",), b"", (), None, b"", 0.0)
ERRANDS: list[tuple[dict[str, Any], str]] = [
    ({"errand": "A b"}, "the name of an errand is 8 to 64 lower-case letters, digits and hyphens"),
    ({"attempt": -1}, "-1 is not the number of an attempt"),
    ({"base": b"d"}, "the base of the errand is no digest"),
    ({"argv": ()}, "the errand has no command"),
    ({"argv": (b"a\0",)}, "the command holds a NUL byte"),
    ({"cwd": b"../x"}, "the directory of the errand: "),
    ({"variables": ((b"a=b", b""),)}, "a variable of the errand has no valid name or value"),
    ({"variables": ((b"a", b""),) * (link.MOST_WORDS + 1)}, "the errand has more than "),
    ({"timeout": float("inf")}, "inf is not a number of seconds"),
    ({"gpus": -1}, "-1 is not a number of GPUs"),
    ({"number": -1}, "-1 is not the number of an attempt among several"),
    ({"level": 7}, "7 is not a level"),
    ({"level": 2}, "commands cannot run at level 2 on this worker; it has: 0, 1 (mudroom doctor there)"),
]


def test_errands_that_a_worker_refuses() -> None:
    """An origin may be another version, or hostile."""
    refused(ERRANDS, lambda change: link.check(ERRAND._replace(**change), (0, 1)))


def test_wrong_places(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    environ = environ_of(place)

    def told(line: str) -> str:
        assert run(shlex.split(line), environ) in (1, 125), line
        return capfd.readouterr().err

    monkeypatch.chdir(place.project)
    config = place.home / ".config/mudroom"
    config.mkdir(parents=True)
    fleet = config / "fleet.json"
    fleet.write_text("{")
    fleet.chmod(0o644)
    assert "names commands that are run, and is not a file that only you can read and write (chmod 600 " in told(
        "fleet ls"
    )
    fleet.chmod(0o600)
    assert "is damaged: " in told("fleet ls")
    fleet.unlink()
    assert run(["fleet", "add", "big", "--", "true"], environ) == 0
    place.write("lines", "x\n" * 10_001)
    assert "10,001 errands (a run has 1 to 10,000 of them)" in told("fleet run --each lines -- true")


def test_a_directory_of_other_users(place: Place) -> None:
    shared = place.root / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    told = f"{shared} is not a directory of this user alone (chmod 700 {shared})"
    refused([(shared, told)], lambda path: private_directory(os.fsencode(path)))
