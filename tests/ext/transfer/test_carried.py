"""Forks carried to another project: with a repository, from another machine's path, with deletions."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.commits.session import bring_commits
from mudroom.ext.transfer.archives import export_file, import_file
from mudroom.stage.views.preflight import filesystem, mounts
from test_appearance import VIEWS, Machines, digests, machines, sh  # noqa: F401 - a fixture
from worktree import linked, out

pytestmark = pytest.mark.both_users


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_archive_of_a_fork(place: Place) -> None:
    linked(place)
    out(place, "echo two >> file; git commit -qam two; echo new > new", "f")
    session = place.session()
    archive = os.fsencode(place.root / "f.tar")
    export_file(session, "f", archive)
    session.forks.discard("f")
    with session.alone("a test"):
        import_file(session, archive, "g")
    assert {c.path for c in session.forks.changeset("g").changes if not c.path.startswith(b".git/")} == {
        b"file",
        b"new",
    }
    assert out(place, "git log --format=%s; git status --porcelain", "g").split() == ["two", "one", "??", "new"]
    assert [c.subject for c in bring_commits(place.session(), "g").commits] == ["two"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_result_comes_home_equal_to_a_local_one(
    machines: Machines,  # noqa: F811
    tmp_path: Path,
    view: str,
) -> None:
    """The same commands, run at home and on the worker: the same changes, and the same whole tree."""
    home = machines.home
    for name in ("a", "d/b", "d/e/c", "gone", "old"):
        home.write(name, f"{name}\n")
    home.write("run", "#!/bin/sh\n", 0o755)
    (home.project / "back").symlink_to(home.project / "a")
    path = home.project
    script = (
        f"echo x >>a; rm gone; mv old d/new; rm -r d/e; mkdir -p d/e; printf 'root = {path}\\n' >{path}/d/e/config; "
        f'ln -s {path}/a {path}/to-a; ln -sf ../d back; chmod 600 run; printf \'{{"directory": "%s"}}\' "$PWD" >db.json'
    )
    local = home.session(Settings(view=view))  # type: ignore[arg-type]
    here = sh(local, script)
    machines.ship()
    archive = os.fsencode(tmp_path / "fork.tar.gz")
    with machines.worker(Settings(view=view)) as session:  # type: ignore[arg-type]
        there = sh(session, script)
        assert there.exit_code == here.exit_code == 0, there.stderr
        export_file(session, there.fork, archive)
    machines.arrive()
    imported = import_file(local, archive, "remote")
    assert (imported.project, imported.strangers) == (machines.path, 0)
    facts = [
        [
            (change.path, change.verb, change.flags, change.lines_added, change.lines_removed, change.source)
            for change in changes
        ]
        for changes in (local.changes.of(here.fork).changes, local.changes.of("remote").changes)
    ]
    assert facts[0] == facts[1]
    assert digests(local, here.fork) == digests(local, "remote")
    with local.alone("a test"):
        landed = local.changes.apply("remote")
    assert landed.applied.conflicts == ()
    assert (path / "d/e/config").read_text() == f"root = {path}\n"
    assert os.readlink(path / "to-a") == f"{path}/a"


def test_an_archive_has_one_form_only(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what was staged in a container can be looked at outside of it, whatever kernel mounts it there."""

    def refuse(*_words: Any, **_names: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "mknod", refuse)  # as on an overlay, even if the tests run on something else
    place.write("f", "f\n")
    place.write("d/x", "x\n")
    session, result = place.sh("rm f d/x", Settings(view="copy"))
    session.forks.checkpoint(result.fork, "one")
    archive = tmp_path / "fork.tar"
    export_file(session, result.fork, os.fsencode(archive))
    with tarfile.open(archive) as members:
        assert sorted(os.path.basename(member.name) for member in members if member.ischr()) == ["f", "x"]
    import_file(session, os.fsencode(archive), "here")
    monkeypatch.undo()
    on_an_overlay = filesystem(os.fsencode(tmp_path), mounts()) == "overlay"
    import_file(session, os.fsencode(archive), "elsewhere")
    for name in ("here", "elsewhere"):
        assert sorted(change.path for change in session.changes.of(name).changes) == [b"d/x", b"f"]
    trees = (place.state / "vaults").glob("*/layers/*/tree")
    devices = [path.name for tree in trees for path in tree.rglob("*") if stat.S_ISCHR(path.lstat().st_mode)]
    assert sorted(devices) == ([] if on_an_overlay else ["f", "x"]), "of the one that was taken in elsewhere"
