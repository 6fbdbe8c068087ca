"""The launcher removes work directories of overlays as the kernel leaves them, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.sandbox.client.connection import with_report
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.client.report import parse_report, read_report

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def made(parent: Path, name: str = "n") -> Path:
    """A work directory as the kernel leaves it."""
    volatile = parent / name / "work" / "incompat" / "volatile"
    volatile.mkdir(parents=True)
    (volatile / "dirty").touch(0)
    for directory in (volatile, volatile.parent, volatile.parent.parent):
        directory.chmod(0)
    return parent / name


def cleared(client: LauncherClient, parent: Path, *names: str) -> None:
    """Have the directories cleared, and wait for an answer to a later request."""
    connection = client.launcher.connection
    assert connection is not None
    connection.send({"op": "clear", "works": tuple((os.fsencode(parent), name.encode()) for name in names)}, ())
    answer = with_report(connection, {"op": "resume", "id": 0}, ())
    assert parse_report(os.read(answer, 100), read_report) == ("done",)
    assert os.read(answer, 1) == b"", "the request has been forgotten"
    os.close(answer)


def test_the_named_ones_go(client: LauncherClient, tmp_path: Path) -> None:
    for name in ("n", "m", "other"):
        made(tmp_path, name)
    cleared(client, tmp_path, "n", "m")
    assert os.listdir(tmp_path) == ["other"]


def test_one_that_is_gone_keeps_none_of_the_others(client: LauncherClient, tmp_path: Path) -> None:
    made(tmp_path)
    cleared(client, tmp_path, "gone", "n")
    cleared(client, tmp_path / "gone", "n")
    assert os.listdir(tmp_path) == []


def test_what_is_not_of_the_kernel_stays(client: LauncherClient, tmp_path: Path) -> None:
    work = made(tmp_path) / "work"
    work.chmod(0o700)
    (work / "mine").write_text("text")
    cleared(client, tmp_path, "n")
    assert (work / "mine").read_text() == "text"


@pytest.mark.parametrize("place", ["parent", "n", "n/work", "n/work/incompat", "n/work/incompat/volatile"])
def test_no_link_is_followed(client: LauncherClient, tmp_path: Path, place: str) -> None:
    target, parent = tmp_path / "target", tmp_path / "parent"
    made(target)
    os.chmod(target / "n" / "work", 0o755)
    planted = parent if place == "parent" else parent / place
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.symlink_to(target if place == "parent" else target / place)
    cleared(client, parent, "n")
    (target / "n" / "work" / "incompat").chmod(0o700)
    (target / "n" / "work" / "incompat" / "volatile").chmod(0o700)
    assert (target / "n" / "work" / "incompat" / "volatile" / "dirty").exists()
    assert os.stat(target / "n" / "work").st_mode & 0o777 == 0o755


def test_no_descriptor_is_left_open(client: LauncherClient, tmp_path: Path) -> None:
    opened = f"/proc/{client.launcher.require_pid()}/fd"
    cleared(client, tmp_path)
    before = os.listdir(opened)
    made(tmp_path)
    cleared(client, tmp_path, "gone", "n")
    assert os.listdir(opened) == before
