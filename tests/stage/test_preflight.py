"""What is known about a project before it is staged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.errors import UsageError
from mudroom.stage.preflight import Mount, check_project, filesystem, find_project, parse_mounts, submounts

MOUNTINFO = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
28 27 0:27 / /home/me/pro\040ject/vol\134ume ro,nosuid master:3 propagate_from:2 - tmpfs tmpfs ro
29 27 0:28 /sub /home/me rw - nfs4 server:/home rw
30 27 0:29 / /home/me/project2 rw - fuse.sshfs host: rw
"""


def test_mountinfo() -> None:
    table = parse_mounts(MOUNTINFO)
    assert table[2] == Mount(b"/home/me/pro ject/vol\\ume", "tmpfs")
    assert [mount.kind for mount in submounts(b"/home/me/pro ject", table)] == ["tmpfs"]
    assert submounts(b"/home/me/project", table) == [], "project2 is a neighbour, not inside"
    assert filesystem(b"/home/me/x", table) == "nfs4"
    assert filesystem(b"/home/me/project2/x", table) == "fuse.sshfs"
    assert filesystem(b"/etc", table) == "ext4"


def test_our_own_mountinfo_parses() -> None:
    table = parse_mounts(Path("/proc/self/mountinfo").read_bytes())
    assert any(mount.path == b"/proc" and mount.kind == "proc" for mount in table)


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
    check_project(home + b"/p", home, state)
    for project, message in (
        (b"/", "cannot be /"),
        (home, "your home directory is in it"),
        (os.path.dirname(home), "your home directory is in it"),
        (home + b"/missing", "does not exist"),
    ):
        with pytest.raises(UsageError, match=message):
            check_project(project, home, state)
    with pytest.raises(UsageError, match="mudroom's own state"):
        check_project(home + b"/p", home, home + b"/p/.state")
