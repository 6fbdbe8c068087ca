"""Places in a project that a repository's settings and hooks name: whatever lies in the place of a hook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mudroom.stage.originals import git_settings
from mudroom.stage.originals.git_settings import run_by_git

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.skipif(sys.platform == "win32", reason="links and FIFOs in the place of hooks"),
]


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    place = tmp_path / ".git/hooks"
    place.mkdir(parents=True)
    (place / "pre-push").write_text("exec tools/check\n")
    return place


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: path.mkdir(), id="directory"),
        pytest.param(lambda path: path.symlink_to("."), id="link-to-directory"),
        pytest.param(lambda path: path.symlink_to("pre-commit"), id="link-to-itself"),
        pytest.param(lambda path: path.write_bytes(b"\x7fELF\0a/b\0.c/d\xff\0" * 100), id="program"),
        pytest.param(lambda path: path.write_bytes(b"a/" + b"b" * 70_000), id="long-word"),
        pytest.param(lambda path: os.mkfifo(path), id="fifo"),  # noqa: PLW0108 - Windows has none to name
    ],
)
def test_anything_may_be_in_the_place_of_a_hook(hooks: Path, make: Callable[[Path], None]) -> None:
    make(hooks / "pre-commit")
    places = run_by_git(os.fsencode(hooks.parent.parent))
    assert b"tools/check" in places.files


def test_a_compiled_hook_names_files(hooks: Path) -> None:
    (hooks / "pre-commit").write_bytes(b"\x7fELF\0tools/run\0")
    assert b"tools/run" in run_by_git(os.fsencode(hooks.parent.parent)).files


@pytest.mark.parametrize("path", ["tools/a b", "tools/a#b", "tools/[a]", "a^b", "run"])
def test_a_hook_names_a_file_with_unusual_characters(hooks: Path, path: str) -> None:
    (hooks / "pre-commit").write_text(f"exec sh './{path}' --now\n")
    assert path.encode() in run_by_git(os.fsencode(hooks.parent.parent)).files


@pytest.mark.parametrize("text", [b"gitdir: a\0b\n", b"gitdir: \0", b"gitdir: ../x\n"])
def test_a_file_in_the_place_of_a_repository(tmp_path: Path, text: bytes) -> None:
    (tmp_path / ".git").write_bytes(text)
    assert run_by_git(os.fsencode(tmp_path)) == ((), ())


def test_a_directory_in_the_place_of_settings(hooks: Path) -> None:
    (hooks.parent / "config").mkdir()
    assert b"tools/check" in run_by_git(os.fsencode(hooks.parent.parent)).files


def test_the_same_words_of_many_hooks_are_looked_up_once(hooks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def note(place: bytes, _root: bytes) -> Iterator[bytes]:
        looked.append(place)
        yield place

    monkeypatch.setattr(git_settings, "_file_within", note)
    for number in range(20):
        (hooks / f"hook-{number}").write_text("exec tools/check\n")
    run_by_git(os.fsencode(hooks.parent.parent))
    assert len(looked) == len(set(looked)) > 0
