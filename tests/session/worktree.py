"""Projects whose ``.git`` is a file: linked work trees and submodules in several layouts, and what is done in their
forks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as, full_listing
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session

GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main -c protocol.file.allow=always"


def with_settings(script: str) -> str:
    return re.sub(r"(?<![-.\w/])git ", GIT + " ", script)


def git(directory: Path, script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", with_settings(script)], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def inside(place: Place, script: str, fork: str | None = None, settings: Settings | None = None) -> Result:
    session = place.session(settings)
    return session.run([b"sh", b"-ec", with_settings(script).encode()], fork=fork)


def out(place: Place, script: str, fork: str | None = None, settings: Settings | None = None) -> str:
    result = inside(place, script, fork, settings)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def make_main(place: Place) -> Path:
    place.project.rmdir()
    main = place.root / "main"
    main.mkdir()
    (main / "file").write_text("one\n")
    (main / "sub").mkdir()
    (main / "sub/other").write_text("other\n")
    git(main, "git init -q; git add -A; git commit -qm one; git tag -am t v1; git branch side")
    return main


def linked(place: Place) -> Path:
    main = make_main(place)
    git(main, f"git worktree add -q -b wt {place.project}")
    return main


def bare(place: Place) -> Path:
    main = make_main(place)
    git(place.root, f"git clone -q --bare main repo.git; git -C repo.git worktree add -q -b wt {place.project} main")
    shutil.rmtree(main)
    return place.root / "repo.git"


def own_settings(place: Place) -> Path:
    main = linked(place)
    git(main, "git config extensions.worktreeConfig true")
    git(place.project, "git config --worktree core.quotePath false; git config --worktree user.signingKey here")
    return main


def relative(place: Place) -> Path:
    """As git 2.48 writes it with worktree.useRelativePaths."""
    main = linked(place)
    (place.project / ".git").write_text("gitdir: ../main/.git/worktrees/project\n")
    (main / ".git/worktrees/project/gitdir").write_text("../../../../project/.git\n")
    config = main / ".git/config"
    config.write_text(config.read_text().replace("repositoryformatversion = 0", "repositoryformatversion = 1"))
    config.write_text(config.read_text() + "[extensions]\n\trelativeWorktrees = true\n")
    return main


def submodule(place: Place) -> Path:
    main = make_main(place)
    upper = place.root / "super"
    upper.mkdir()
    git(upper, f"git init -q; git submodule add -q {main} x; git commit -qm super; git -C x switch -qc wt")
    place.project = upper / "x"
    return upper / ".git/modules/x"


def link(place: Place) -> Path:
    main = linked(place)
    (place.project / ".git").unlink()
    (place.project / ".git").symlink_to("../main/.git/worktrees/project")
    return main


def sha256(place: Place) -> Path:
    main = make_main(place)
    shutil.rmtree(main / ".git")
    git(main, "git init -q --object-format=sha256; git add -A; git commit -qm one; git branch side; git tag -am t v1")
    git(main, f"git worktree add -q -b wt {place.project}")
    return main


LAYOUTS: dict[str, Callable[[Place], Path]] = {
    "linked": linked,
    "bare": bare,
    "own settings": own_settings,
    "submodule": submodule,
    "sha256": sha256,
}
REPLACING = ("rm -r .git", "rm -r .git; echo gitdir: /x > .git", "rm -r .git; git init -q")
WAYS = ("level 0", "no namespaces", "background", "mount")


# --- what is done in a fork ---


def nothing_lands_below_a_file(place: Place, **how: Any) -> None:
    main = linked(place)
    files, link_text = full_listing(main), (place.project / ".git").read_text()
    script = (
        "git config a.b c; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit; chmod +x .git/hooks/post-commit"
    )
    out(place, script + "; echo two >> file; git -c core.hooksPath=/x commit -qam two", "f")
    session = place.session()
    try:
        session.changes.apply("f", **how)
    except UsageError:
        pass
    assert (place.project / ".git").read_text() == link_text
    assert {k: v for k, v in full_listing(main).items() if "hooks" in k or k == ".git/config"} == {
        k: v for k, v in files.items() if "hooks" in k or k == ".git/config"
    }


def replace_the_repository(place: Place, script: str, **how: Any) -> None:
    main = linked(place)
    files, link_text = full_listing(main), (place.project / ".git").read_text()
    result = inside(place, script + "; echo new > new", "f")
    assert result.exit_code == 0, result.stderr
    if "init" not in script:
        assert {change.path for change in result.changeset.changes} == {b".git", b"new"}
    place.session().changes.apply("f", **how)
    assert (place.project / ".git").read_text() == link_text
    assert (place.project / "new").exists()
    assert full_listing(main) == files


def commit_on_a_frozen_base(place: Place, mode: str) -> None:
    linked(place)
    settings = Settings(view="copy") if mode == "copy" else None
    if mode == "snapshot":
        place.session().forks.new("f", snapshot=True)
        (place.project / "file").write_text("user\n")
        git(place.project, "git commit -qam user")
    out(place, "git status --porcelain > /dev/stderr; echo two >> file; git commit -qam two", "f", settings)
    assert out(place, "git log --format=%s; git status --porcelain", "f", settings).split() == ["two", "one"]


def commit_in_another_way(place: Place, kind: str) -> Session:
    main = linked(place)
    files = full_listing(main)
    session = place.session()
    script = "echo two >> file; git commit -qam two; git status --porcelain; git log --format=%s"
    argv = [b"sh", b"-ec", with_settings(script).encode()]
    if kind == "mount":
        mounted = session.forks.mount(session.forks.new("f").name)
        shown = git(Path(os.fsdecode(mounted.place)), script)
        session.forks.unmount("f")
    elif kind == "background":
        started = session.start(argv, fork="f")
        started.wait()
        shown = started.output()[0].decode()
    else:
        if kind == "no namespaces":
            if not landlock_abi():
                pytest.skip("this kernel has no Landlock")
            session.machine.confinement.mode = "landlock"
        else:
            act_as(session, level=0)
        result = session.run(argv, fork="f")
        assert result.exit_code == 0, (result.stderr, result.notes)
        shown = result.stdout.decode()
    assert shown.split() == ["two", "one"]
    if kind != "mount":  # git on the host marks the objects that it uses as recent, those of alternates too
        assert full_listing(main) == files
    return session
