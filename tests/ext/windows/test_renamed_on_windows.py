"""The user renames a directory on Windows while an apply or an undo holds it open: nothing lands where it was not
meant. Run by ``dev/wine --all``. ``tests/vault/apply/test_kept_directories.py`` without its links, by commands that
are functions.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

sys.path += [str(Path(__file__).parents[2] / room) for room in ("vault", "vault/apply")]

from mudroom.stage.beneath import LastDirectory
from mudroom.vault.apply.execution import Executor
from test_kept_directories import NAMES, Act, acting, check, everything, move_away, put_another
from workbench import Workbench

pytestmark = pytest.mark.slow
IS_WINE = hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")
BY_NUMBER = pytest.mark.parametrize("number", [1, 2])


def change(work: Path) -> None:
    for name in NAMES:
        (work / name).write_text("fork\n")


def delete(work: Path) -> None:
    for name in NAMES:
        (work / name).unlink()
    (work / "d/stays").touch()


def add(work: Path) -> None:
    for name in NAMES:
        (work / f"{name}.new").write_text("fork\n")


class Meanwhile:
    """A project with a fork, for an act after a call of what an apply or an undo does."""

    def __init__(self, root: Path, command: Callable[[Path], None], act: Act, patch: pytest.MonkeyPatch) -> None:
        self.bench, self._act, self._patch = Workbench(root), act, patch
        self._is_cut_off = False
        (self.bench.project / "d").mkdir()
        for name in NAMES:
            (self.bench.project / name).write_text("base\n")
        self.bench.run("f", command)

    def after(self, owner: Any, name: str, number: int, do: Callable[[], object]) -> list[str]:
        """Do it, with the act after this call. Return the paths that were passed."""
        with self._patch.context() as patch:
            seen = acting(patch, owner, name, number, lambda: self._act(self.bench.project))
            try:
                do()
            except OSError as error:
                if "its identity cannot be read" not in str(error) or not IS_WINE:
                    raise
                self._is_cut_off = True
        return seen

    def check(self, before: dict[str, str], done: set[str]) -> None:
        check(self.bench, before, done, self._act)  # type: ignore[arg-type]  # it has the places of a Place
        if self._is_cut_off:
            pytest.skip("Wine 8 looks for an open file's identity where its directory was: it ends there, and is right")


@pytest.fixture(params=[(command, act) for command in (change, delete, add) for act in (move_away, put_another)])
def meanwhile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Meanwhile]:
    command, act = request.param
    made = Meanwhile(tmp_path, command, act, monkeypatch)
    yield made
    made.bench.remove()


def now(meanwhile: Meanwhile) -> dict[str, str]:
    return everything(meanwhile.bench)["d"]  # type: ignore[arg-type]


@BY_NUMBER
def test_between_two_operations(meanwhile: Meanwhile, number: int) -> None:
    before = now(meanwhile)
    seen = meanwhile.after(Executor, "_perform", number, lambda: meanwhile.bench.apply("f"))
    meanwhile.check(before, {os.path.basename(name) for name in seen[:number]})
    assert len(seen) >= 3


@BY_NUMBER
def test_while_the_plan_is_made(meanwhile: Meanwhile, number: int) -> None:
    before = now(meanwhile)
    seen = meanwhile.after(LastDirectory, "look", number, lambda: meanwhile.bench.apply("f"))
    meanwhile.check(before, set())
    assert len(seen) > number


@BY_NUMBER
def test_while_an_undo_is_planned(meanwhile: Meanwhile, number: int) -> None:
    assert meanwhile.bench.apply("f") == []
    before = now(meanwhile)
    seen = meanwhile.after(LastDirectory, "look", number, meanwhile.bench.undo)
    assert len(seen) >= number
    meanwhile.check(before, {"f1", "f2", "f3", "stays"} if "stays" in before else set())
