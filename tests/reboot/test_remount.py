"""Forks, applies and undo across a clean remount: btrfs, overlayfs, FUSE, NFS and ZFS get a device number at each
mount, and a loop device may get another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remounted import IMAGES, KINDS, Remounted, remounted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both_users,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root"),
]

Tree = dict[str, str]
SCRIPT = """
set -e
sed -i 's/^3$/three/' edited; rm gone; rm -r d
mkdir -p new/deep; echo n > new/deep/n; ln new/deep/n new/hard; echo s > single
mv moved there; chmod 755 mode
"""
SECOND = "set -e; sed -i 's/^40$/forty/' edited; echo two > second; rm untouched"


def fill(project: Path) -> None:
    lines = "".join(f"{number}\n" for number in range(50))
    for name in ("edited", "gone", "d/a", "d/b/c", "moved", "mode", "untouched", "both"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(lines + name)


def tree(project: Path) -> Tree:
    """Return the project's files with content and mode."""
    found = (path for path in sorted(project.rglob("*")) if path.is_file())
    texts = {str(path.relative_to(project)): f"{path.stat().st_mode:o} {path.read_text()}" for path in found}
    return {name: text for name, text in texts.items() if not name.startswith(".mudroom/")}


CELLS = [(kind, view) for kind in KINDS for view in ("auto", "copy") if view == "auto" or kind in IMAGES]
QUICK = ("btrfs", "auto")


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("kind", "view"), [cell if cell == QUICK else pytest.param(*cell, marks=pytest.mark.deep) for cell in CELLS]
)
def test_a_fork_and_an_undo_outlive_a_remount(tmp_path: Path, kind: str, view: str) -> None:
    """On overlayfs and FUSE a command works in a copy anyway."""
    with remounted(tmp_path, kind) as ground:
        play(ground, view)


def play(ground: Remounted, view: str) -> None:
    fill(ground.project)
    start = tree(ground.project)
    ground.succeed("exec", "--view", view, "--fork", "a", "--", "sh", "-c", SCRIPT)
    ground.succeed("exec", "--view", view, "--fork", "b", "--", "sh", "-c", SECOND)
    ground.succeed("exec", "--view", view, "--fork", "c", "--", "sh", "-c", "echo theirs > both")
    ground.succeed("checkpoint", "point", "--fork", "b")
    ground.remount()

    assert ground.succeed("diff", "--conflicts", "a") == "", "there is no conflict"
    ground.succeed("apply", "a", "--yes")
    first = tree(ground.project)
    assert first["edited"] != start["edited"]
    assert "second" not in first
    ground.remount()

    ground.succeed("exec", "--view", view, "--fork", "b", "--", "sh", "-c", "echo more >> second")
    ground.succeed("apply", "b", "--yes")
    both = tree(ground.project)
    assert both["second"].endswith("two\nmore\n")
    assert "three" in both["edited"]
    assert "forty" in both["edited"]
    ground.remount()

    ground.succeed("undo", "--yes")
    assert tree(ground.project) == first
    ground.remount()
    ground.succeed("redo", "--yes")
    assert tree(ground.project) == both
    ground.remount()
    ground.succeed("undo", "--yes")
    ground.remount()
    ground.succeed("undo", "--yes")
    assert tree(ground.project) == start

    (ground.project / "both").write_text("ours\n")
    assert ground.mudroom("apply", "c", "--yes").returncode == 3, "an edit of the user's is a conflict"
    assert (ground.project / "both").read_text() == "ours\n"
