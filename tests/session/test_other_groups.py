"""Projects with files of another group of the user's, as a web server has them: the same commands bare and inside."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

UID, GROUP, WEB = 54_321, 54_321, 33
pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(sys.platform == "win32" or bool(os.geteuid()), reason="only root can be somebody else"),
]


@pytest.fixture
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mrg", dir="/tmp") as path:
        os.chmod(path, 0o755)
        yield Path(path)


def laravel(project: Path) -> None:
    """`storage` and `bootstrap/cache` belong to the group of the web server, which the user is in."""
    for name in ("app", "bootstrap/cache", "storage/logs", "storage/framework/views"):
        (project / name).mkdir(parents=True)
    for name in ("app/x.php", "storage/logs/laravel.log", "bootstrap/cache/services.php", "shared.txt"):
        (project / name).write_text("one\n")
    for path in (project, *project.rglob("*")):
        is_shared = "storage" in path.parts or "cache" in path.parts
        os.chown(path, UID, WEB if is_shared else GROUP)
        path.chmod(0o2775 if is_shared and path.is_dir() else 0o775 if path.is_dir() else 0o664)


def as_user(words: Sequence[str], top: Path, project: Path) -> subprocess.CompletedProcess[str]:
    home = top / "home"
    if not home.exists():
        home.mkdir()
        os.chown(home, UID, GROUP)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "MUDROOM_KEEPER": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words,
        cwd=project,
        env=environment | {"MUDROOM_STATE": str(home / "state")},
        user=UID,
        group=GROUP,
        extra_groups=[GROUP, WEB],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=0o002,
        timeout=100,
        check=False,
    )


def listing(project: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, group and content by path."""
    return {
        str(path.relative_to(project)): (
            stat.S_IMODE(path.stat().st_mode),
            path.stat().st_gid,
            path.read_text() if path.is_file() else "",
        )
        for path in sorted(project.rglob("*"))
    }


WORK = (
    "echo two >> storage/logs/laravel.log; echo new > storage/logs/new.log; mkdir -p storage/framework/cache/data; "
    "echo v > storage/framework/views/v.php; rm bootstrap/cache/services.php; echo p > bootstrap/cache/packages.php; "
    "mv storage/logs/laravel.log storage/logs/old.log; echo two >> app/x.php"
)


def test_a_command_works_in_a_directory_of_another_group(top: Path) -> None:
    bare, inside = top / "bare", top / "inside"
    for project in (bare, inside):
        project.mkdir()
        laravel(project)
    assert as_user(["sh", "-ec", WORK], top, bare).returncode == 0
    done = as_user([sys.executable, "-m", "mudroom", "run", "--yes", "--", "sh", "-ec", WORK], top, inside)
    assert done.returncode == 0, done.stderr
    assert "for which an overlay has no id: working in a copy" in done.stderr
    assert listing(inside) == listing(bare)
    shutil.rmtree(top / "home")


def test_a_file_of_another_group_is_named(top: Path) -> None:
    """An overlay copies it up with its owner, which a user namespace of one group cannot name: EOVERFLOW. A copy of the
    whole project for one file is the user's choice."""
    project = top / "project"
    project.mkdir()
    laravel(project)
    shutil.rmtree(project / "storage")
    shutil.rmtree(project / "bootstrap")
    os.chown(project / "shared.txt", UID, WEB)
    run = [sys.executable, "-m", "mudroom", "run", "--yes"]
    work = ["--", "sh", "-c", "echo two >> shared.txt"]
    done = as_user([*run, *work], top, project)
    assert done.returncode == 2 and (project / "shared.txt").read_text() == "one\n"
    assert (
        "note: shared.txt belongs to another user or group, for which an overlay has no id: the command cannot change "
        "it (--view copy can)" in done.stderr
    )
    done = as_user([*run, "--view", "copy", *work], top, project)
    assert done.returncode == 0, done.stderr
    assert listing(project)["shared.txt"] == (0o664, WEB, "one\ntwo\n")
    shutil.rmtree(top / "home")
