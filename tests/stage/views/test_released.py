"""Whether an overlay's upper directory is proven to be out of reach: a program asks the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Place
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session import Stdio
from mudroom.stage.views import released as module
from mudroom.stage.views.released import released

pytestmark = pytest.mark.both_users

if os.name == "nt":
    pytest.skip("overlays are the Linux kernel's", allow_module_level=True)


def scratch(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "scratch")


def test_a_directory_that_no_mount_uses_is_released_as_it_was(tmp_path: Path) -> None:
    uppers = [tmp_path / name for name in ("plain", "with,comma:and\\more", "marked")]
    for upper in uppers:
        upper.mkdir()
    os.setxattr(uppers[2], "user.overlay.origin", b"before")
    assert released(list(map(os.fsencode, uppers)), scratch(tmp_path)) == [True, True, True]
    assert [os.listxattr(upper) for upper in uppers] == [[], [], ["user.overlay.origin"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(upper.name for upper in uppers)


@pytest.mark.parametrize("kind", ["missing", "file", "link"])
def test_what_cannot_be_asked_releases_none(tmp_path: Path, kind: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    if kind == "file":
        bad.touch()
    elif kind == "link":
        bad.symlink_to(good)
    assert released([os.fsencode(good), os.fsencode(bad)], scratch(tmp_path)) == [False, False]


@pytest.mark.parametrize("text", [None, "", "#!/bin/sh\nexit 1\n", "#!/bin/sh\nprintf 00\n", "#!/bin/sh\nprintf x\n"])
def test_a_program_that_does_not_answer_releases_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    program, upper = tmp_path / "program", tmp_path / "upper"
    upper.mkdir()
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setattr(module, "LAUNCHER", os.fsencode(program))
    assert released([os.fsencode(upper)], scratch(tmp_path)) == [False]


def test_a_directory_of_a_running_command_is_not_released(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    session, cancellation = place.session(), Cancellation()
    seen: list[list[bool]] = []

    def look(_name: str, _data: bytes) -> None:
        uppers = [os.fsencode(path) for path in place.state.rglob("tree") if path.is_dir()]
        seen.append(released(uppers, scratch(place.root)))
        cancellation.cancel()

    command = [b"sh", b"-c", b"echo x > x; echo up; exec sleep 1000"]
    session.run(command, stdio=Stdio(on_output=look), cancellation=cancellation)
    assert seen == [[False]]
