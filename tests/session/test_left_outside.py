"""What a command writes outside the project, where nothing is kept, is told."""

from __future__ import annotations

import os

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.stage.left import MOST

pytestmark = [pytest.mark.both_users, if_namespaces]
WRITE = (
    "mkdir -p ~/bin; echo 12 > ~/bin/tool; echo 1 > /tmp/direct; mkdir /tmp/deep; echo 1 > /tmp/deep/x; ln -s / ~/root"
)


@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize("fork", ["f", None])
def test_it_is_told_after_each_command(place: Place, view: str, fork: str | None) -> None:
    """The first one of a session, those from a template, and those of a standing sandbox."""
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    home = os.fsdecode(place.home)
    for _number in range(4):
        result = session.run([b"sh", b"-c", WRITE.encode()], fork=fork)
        assert (result.exit_code, result.stderr) == (0, b"")
        assert {os.fsdecode(file.path): file.size for file in result.left} == {
            f"{home}/bin/tool": 3,
            "/tmp/direct": 2,
            "/tmp/deep/x": 2,
        }
        told = "written outside the project and not kept: ~/bin/tool, /tmp/direct (2 files, 5 B)"
        assert result.notes == (f"{told}; for a day, mudroom keep {result.fork} ~/bin/tool copies it out",)
        result = session.run([b"true"], fork=fork)
        assert (result.left, result.notes) == ((), ())
    assert not (place.home / "bin").exists()


def test_a_setting_that_was_placed_is_told_when_it_is_changed(place: Place) -> None:
    (place.home / ".gitconfig").write_text("[user]\n\tname = Me\n")
    session = place.session()
    assert session.run([b"git", b"config", b"--global", b"user.name"]).left == ()
    result = session.run([b"git", b"config", b"--global", b"alias.st", b"status"])
    assert [file.path for file in result.left] == [os.fsencode(place.home) + b"/.gitconfig"]


def test_what_a_process_holds_that_outlives_its_command_is_told(place: Place) -> None:
    session = place.session()
    for _number in range(3):
        result = session.run([b"sh", b"-c", b"echo 1 > ~/made; sleep 1000 >/dev/null 2>&1 &"], fork="f")
        assert [os.fsdecode(file.path) for file in result.left] == [f"{os.fsdecode(place.home)}/made"]


def test_a_command_that_does_not_start_has_left_nothing(place: Place) -> None:
    session = place.session()
    before = len(os.listdir("/proc/self/fd"))
    for _number in range(3):
        result = session.run([b"sh", b"-c", b"kill -9 $$"])
        assert result.left == ()
    assert len(os.listdir("/proc/self/fd")) <= before + 12  # the session's own; none for each command


def test_a_flood_is_bounded(place: Place) -> None:
    session = place.session()
    result = session.run([b"sh", b"-c", b"mkdir ~/d; cd ~/d; i=0; while [ $i -lt 2500 ]; do : > $i; i=$((i+1)); done"])
    assert MOST // 2 < len(result.left) < MOST  # what was placed counts, too
