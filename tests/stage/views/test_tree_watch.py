"""A look at a watched project: whether anything has changed, and whether that lasts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mudroom.stage.views import tree_watch
from mudroom.stage.views.tree_watch import TreeWatch

pytestmark = pytest.mark.both_users


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / "below").mkdir(parents=True)
    (path / "a").write_text("1\n")
    return path


@pytest.fixture
def watch(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TreeWatch]:
    monkeypatch.setattr(tree_watch, "_QUIET", 1)
    watch = TreeWatch(os.fsencode(project))
    watch.look()
    assert watch.look() == watch.look(), "nothing is watched"
    yield watch
    watch.close()


def came_and_went(name: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        (project / name).touch()
        (project / name).unlink()

    return change


def twice(project: Path) -> None:
    came_and_went("new")(project)
    came_and_went("new")(project)


@pytest.mark.parametrize("change", [came_and_went("new"), came_and_went("below/new"), twice])
def test_a_file_that_came_and_went_is_no_lasting_change(
    watch: TreeWatch, project: Path, change: Callable[[Path], None]
) -> None:
    before = watch.look()
    change(project)
    after = watch.look()
    assert after.changed != before.changed
    assert after.lasting == before.lasting
    assert watch.look() == after


def left(project: Path) -> None:
    (project / "new").touch()


def left_after_all(project: Path) -> None:
    twice(project)
    left(project)


def removed(project: Path) -> None:
    (project / "a").unlink()


def removed_and_made(project: Path) -> None:
    (project / "a").unlink()
    (project / "a").touch()


def replaced(project: Path) -> None:
    (project / "new").touch()
    (project / "new").rename(project / "a")


def moved_in_and_removed(project: Path) -> None:
    """The name may have been another file's before."""
    (project.parent / "outside").touch()
    (project.parent / "outside").rename(project / "a")
    (project / "a").unlink()


def written(project: Path) -> None:
    with (project / "a").open("a") as stream:
        stream.write("2\n")


def written_by_another_name(project: Path) -> None:
    """No event names the file itself."""
    (project / "new").hardlink_to(project / "a")
    with (project / "new").open("a") as stream:
        stream.write("2\n")
    (project / "new").unlink()


def closed_by_another_name(project: Path) -> None:
    (project / "new").hardlink_to(project / "a")
    (project / "new").chmod(0o600)
    (project / "new").unlink()


def directory(project: Path) -> None:
    """Files in it are not told before it is watched."""
    (project / "new").mkdir()
    (project / "new").rmdir()


def beside_another(project: Path) -> None:
    came_and_went("new")(project)
    (project / "a").chmod(0o600)


@pytest.mark.parametrize(
    "change",
    [
        left, left_after_all, removed, removed_and_made, replaced, moved_in_and_removed, written,
        written_by_another_name, closed_by_another_name, directory, beside_another,
    ],
)  # fmt: skip
def test_all_else_lasts(watch: TreeWatch, project: Path, change: Callable[[Path], None]) -> None:
    before = watch.look()
    change(project)
    after = watch.look()
    assert after.changed != before.changed
    assert after.lasting != before.lasting
    assert watch.look() == after


def test_a_look_in_between_sees_it_there(watch: TreeWatch, project: Path) -> None:
    before = watch.look()
    (project / "new").touch()
    between = watch.look()
    (project / "new").unlink()
    assert len({before.lasting, between.lasting, watch.look().lasting}) == 3


def test_git_that_only_looks(watch: TreeWatch, project: Path) -> None:
    """It makes ``index.lock`` and removes it: git-status(1), background refresh."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", project, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", "a")
    os.utime(project / "a", (1, 1))  # older than the index: git compares whole seconds in places
    git("status")
    before = watch.look()
    git("status")
    git("diff")
    after = watch.look()
    assert after.changed != before.changed, "git takes no lock any more: this test is about nothing"
    assert after.lasting == before.lasting


def test_without_a_watch_each_look_is_another(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_watch, "_QUIET", 2)
    watch = TreeWatch(os.fsencode(project))
    looks = [watch.look(begins=False) for _time in range(5)]
    assert len({look.changed for look in looks}) == len({look.lasting for look in looks}) == 5
    assert watch.look() != watch.look()  # with the second it begins
    assert watch.look() == watch.look()
    watch.close()
