"""Messages of commands whose sandbox cannot be as it was asked for, or whose disk is full."""

from __future__ import annotations

import errno
import os
import shlex

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.cli.main import run

OWN = "cannot be shown: the sandbox has its own"


def environ_of(place: Place) -> dict[bytes, bytes]:
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in variables.items()}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run --read /proc/sys -- true", f"/proc/sys {OWN}"),
        ("run --read /dev/null -- true", f"/dev/null {OWN}"),
        ("run --read /run -- true", f"/run {OWN} (name what is needed of it)"),
    ],
)
@if_namespaces
def test_a_path_that_the_sandbox_has_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    place.write("a", "1\n")
    monkeypatch.chdir(place.project)
    assert run(shlex.split(line), environ_of(place)) == 125
    assert capfd.readouterr().err.splitlines()[-1] == f"mudroom: {told}"


@pytest.mark.parametrize("level", ["1", "0"])
def test_an_image_is_for_level_2(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], level: str
) -> None:
    monkeypatch.chdir(place.project)
    assert run(["run", "--level", level, "--image", "x", "--", "true"], environ_of(place)) == 125
    said = capfd.readouterr().err
    assert said == f"mudroom: --image is for level 2, not for level {level} (leave --level out)\n"


def test_a_disk_that_is_full_when_a_command_is_collected(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.write("a", "1\n")
    monkeypatch.chdir(place.project)
    environ = environ_of(place)
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.session.own_sandbox.gather", fail)
        assert run(["exec", "--fork", "f", "--", "sh", "-c", "echo 2 > a"], environ) == 125
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"mudroom: No space left on device: {place.state}/vaults/")
    assert said.endswith(
        " has no room for what the command did in f (mudroom discard f gives back what it holds; the project is as it "
        "was)"
    )
    assert (place.project / "a").read_text() == "1\n"
    assert run(["discard", "f"], environ) == 0, "the hint works"
