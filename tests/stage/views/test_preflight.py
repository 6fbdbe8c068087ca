"""What is known about a project before it is staged."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from mudroom.core.tree.entry import Entry
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.beneath import entries
from mudroom.stage.views import preflight
from mudroom.stage.views.preflight import (
    MountPoint,
    MountTable,
    check_project,
    filesystem,
    find_project,
    mounts,
    no_overlay,
    parse_mounts,
    policy_above,
    spanned,
    submounts,
)

pytestmark = [pytest.mark.both_users, pytest.mark.root]

MOUNTINFO = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 29 0:27 / /home/me/pro\040ject/vol\134ume ro,nosuid master:3 propagate_from:2 - tmpfs tmpfs ro
29 27 0:28 /sub /home/me rw - nfs4 server:/home rw
30 29 0:29 / /home/me/project2 rw - fuse.sshfs host: rw
"""


def test_mountinfo() -> None:
    table = parse_mounts(MOUNTINFO)
    assert table[2] == MountPoint(b"/home/me/pro ject/vol\\ume", "tmpfs", 28, 29)
    assert [mount.kind for mount in submounts(b"/home/me/pro ject", table)] == ["tmpfs"]
    assert submounts(b"/home/me/project", table) == [], "project2 is a neighbour, not inside"
    assert filesystem(b"/home/me/x", table) == "nfs4"
    assert filesystem(b"/home/me/project2/x", table) == "fuse.sshfs"
    assert filesystem(b"/etc", table) == "ext4"


ROOT = "64 63 254:0 / / rw - ext4 x rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "inside", "kind"),
    [
        (ROOT + "88 64 0:5 / /t/p/sub rw - nfs4 x rw\n89 64 0:6 / /t/p rw - tmpfs x rw\n", [], "tmpfs"),
        (ROOT + "88 64 0:5 / /t/p/sub rw - nfs4 x rw\n89 88 0:6 / /t/p/sub rw - tmpfs x rw\n", [b"/t/p/sub"], "tmpfs"),
        (ROOT + "88 64 0:5 / /t/p/sub/x rw - nfs4 x rw\n89 64 0:6 / /t rw - tmpfs x rw\n", [], "tmpfs"),
        ("1 1 0:1 / / rw - rootfs x rw\n64 1 0:2 / / rw - ext4 x rw\n7 64 0:5 / /t rw - nfs4 x rw\n", [], "nfs4"),
        ("7 5 0:5 / /t/p/sub rw - nfs4 x rw\n", [b"/t/p/sub"], "nfs4"),
    ],
    ids=["below its directory", "at one place", "far below", "a first mount that is its own parent", "a chroot"],
)
def test_a_mount_that_another_one_hides_is_none(mountinfo: str, inside: list[bytes], kind: str) -> None:
    """No path leads to it: what was mounted later covers it. The lines are those of Linux, shortened."""
    table = parse_mounts(mountinfo.encode())
    assert [mount.path for mount in submounts(b"/t/p", table)] == inside
    assert filesystem(b"/t/p/sub/x", table) == kind


def test_a_project_of_another_group_of_the_user_is_no_place_for_an_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directories could not be copied up, so that each change below the first level failed (EOVERFLOW)."""
    place, group = os.fsencode(tmp_path), tmp_path.stat().st_gid
    for user, own, groups, why in (
        (1000, group, [group, 7], ""),
        (1000, 7, [7, group], f"the project is shared by the group {group}, for which an overlay has no id"),
        (1000, 7, [7], ""),  # nor could a copy give files to it
        (0, 7, [7, group], ""),
    ):
        monkeypatch.setattr(disk, "user", lambda user=user: user)
        monkeypatch.setattr(disk, "group", lambda own=own: own)
        monkeypatch.setattr(os, "getgroups", lambda groups=groups: groups)
        assert no_overlay(place) == why


@pytest.mark.parametrize(
    ("place", "groups", "mode", "is_named"),
    [
        ("storage", [7, 33], 0o775, True),
        ("bootstrap/cache", [7, 33], 0o775, True),
        ("var/www/cache", [7, 33], 0o775, True),
        ("storage", [7], 0o775, False),
        ("storage", [7, 33], 0o555, False),
    ],
)
def test_a_directory_of_another_group_of_the_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, groups: list[int], mode: int, is_named: bool
) -> None:
    """A Laravel project: `storage` belongs to the group of the web server. Packages of others lie beside it."""
    for number in range(600):
        (tmp_path / "node_modules" / str(number)).mkdir(parents=True)
    for number in range(70):
        (tmp_path / f"file{number}").touch()
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    own = entries

    def listed(opened: int) -> dict[bytes, Entry]:
        """With the group of the web server, which a test cannot give to a directory."""
        inode = (tmp_path / place).stat().st_ino
        return {name: entry._replace(gid=33) if entry.inode == inode else entry for name, entry in own(opened).items()}

    monkeypatch.setattr(preflight, "entries", listed)
    monkeypatch.setattr(disk, "user", lambda: 1000)
    monkeypatch.setattr(disk, "group", lambda: 7)
    monkeypatch.setattr(os, "getgroups", lambda: groups)
    why = f"{place} is shared by the group 33, for which an overlay has no id"
    assert no_overlay(os.fsencode(tmp_path)) == (why if is_named else "")


def test_a_mount_inside_the_project_is_named() -> None:
    table = [
        MountPoint(b"/", "ext4", 1, 0),
        MountPoint(b"/p", "ext4", 2, 1),
        MountPoint(b"/p/in", "tmpfs", 3, 2),
        MountPoint(b"/q/in", "tmpfs", 4, 1),
    ]
    assert spanned(b"/p", table) == "/p/in is mounted inside the project, which no overlay can span"
    assert spanned(b"/p/in", table) == spanned(b"/pp", table) == ""


def test_our_own_mountinfo_parses() -> None:
    table = parse_mounts(Path("/proc/self/mountinfo").read_bytes())
    assert any(mount.path == b"/proc" and mount.kind == "proc" for mount in table)


def test_a_policy_above_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "home"
    inner = home / "outer/between/inner"
    (inner / ".mudroom").mkdir(parents=True)
    (home / "outer/.mudroom/local").mkdir(parents=True)
    (home / ".mudroom").mkdir()
    (home / ".mudroom/policy.yaml").write_text("")
    project, at_home = os.fsencode(inner), os.fsencode(home)
    assert find_project(project, at_home) == project
    assert policy_above(project, at_home) is None, "a .mudroom without a policy decides nothing; the home is no project"
    (home / "outer/.mudroom/local/rules.yaml").write_text("deny: [curl]\n")
    assert policy_above(project, at_home) == os.fsencode(home / "outer")
    assert policy_above(os.fsencode(home / "outer"), at_home) is None, "its own is not above it"
    assert policy_above(at_home, at_home) is None


def test_finding_the_project(tmp_path: Path) -> None:
    home = tmp_path / "home"
    inner = home / "work/repo/src/deep"
    inner.mkdir(parents=True)
    (home / ".git").mkdir()
    here, at_home = os.fsencode(inner), os.fsencode(home)
    assert find_project(here, at_home) == here, "a dotfiles repository in the home is not the project"
    (home / "work/repo/.git").write_text("gitdir: elsewhere\n")
    assert find_project(here, at_home) == os.fsencode(home / "work/repo")
    (home / "work/.mudroom").mkdir()
    assert find_project(here, at_home) == os.fsencode(home / "work"), ".mudroom says it best"
    assert find_project(at_home, at_home) == at_home


def test_what_cannot_be_a_project(tmp_path: Path) -> None:
    home, state = os.fsencode(tmp_path / "home"), os.fsencode(tmp_path / "state")
    (tmp_path / "home/p").mkdir(parents=True)
    for project in (b"/p", b"/.config/nvim", b"/.codex/worktrees/p"):
        os.makedirs(home + project, exist_ok=True)
        check_project(home + project, home, state)
    for project, message in (
        (b"/", "cannot be /"),
        (home, "your home directory is in it"),
        (os.path.dirname(home), "your home directory is in it"),
        (home + b"/missing", "does not exist"),
        (home + b"/.config", "credentials are kept there"),
        (home + b"/.aws", r"credentials are kept there \(AWS CLI"),
        (home + b"/.docker/contexts", r"credentials are kept there \(Docker"),
        (home + b"/.ssh", r"credentials are kept there \(keys and settings of ssh"),
        (home + b"/.claude", r"credentials are kept there \(Claude Code"),
    ):
        with pytest.raises(UsageError, match=message):
            check_project(project, home, state)
    with pytest.raises(UsageError, match="mudroom's own state"):
        check_project(home + b"/p", home, home + b"/p/.state")


def test_the_mount_table_is_read_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says so for a real mount, which only root can make: here poll is made to say it."""
    table = MountTable()
    first = table.mounts()
    assert first == mounts()
    assert table.mounts() is first, "nothing was mounted meanwhile"
    monkeypatch.setattr(table, "_poller", _AlwaysReady())
    again = table.mounts()
    assert again == first
    assert again is not first


class _AlwaysReady:
    def poll(self, _timeout: int) -> list[tuple[int, int]]:
        return [(0, 2)]


@pytest.mark.skipif(disk.user() != 0, reason="only root may mount here")
def test_a_new_mount_is_seen_at_once(tmp_path: Path) -> None:
    table = MountTable()
    before = table.mounts()
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=True)
    try:
        assert os.fsencode(tmp_path) in {mount.path for mount in table.mounts()}
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert table.mounts() == before


def test_many_threads_ask_one_table() -> None:
    """poll(2) of one object at a time: select.poll raises RuntimeError otherwise."""
    table = MountTable()
    expected, found = mounts(), list[object]()

    def ask() -> None:
        try:
            found.extend(table.mounts() == expected for _ in range(300))
        except RuntimeError as error:
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.close()
    assert found == [True] * 2400
