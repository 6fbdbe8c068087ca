"""Projects whose ``.git`` is a file: linked work trees and submodules, with real git.

Their repository lies outside of the project. Commands use a private one with the same history; commits are imported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Place, full_listing
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.vault.git.place import find_repository
from worktree import (
    LAYOUTS,
    REPLACING,
    WAYS,
    commit_in_another_way,
    commit_on_a_frozen_base,
    git,
    inside,
    link,
    linked,
    make_main,
    nothing_lands_below_a_file,
    out,
    relative,
    replace_the_repository,
    with_settings,
)

pytestmark = [pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"), pytest.mark.both_users]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_commands_have_a_repository_of_their_own(place: Place, layout: str) -> None:
    repository = LAYOUTS[layout](place)
    files = full_listing(repository)
    assert out(place, "git status --porcelain --branch", "f").splitlines() == ["## wt"]
    out(
        place,
        "echo two >> file; git add file; git commit -qm two; echo three > new; git add new; git commit -qm 3",
        "f",
    )
    assert out(place, "git log --format=%s; git status --porcelain", "f").split() == ["3", "two", "one"]
    assert full_listing(repository) == files, "the real repository was written"


@pytest.mark.parametrize("layout", [relative, link], ids=["relative", "link"])
def test_other_ways_to_the_same_repository(place: Place, layout: Callable[[Place], Path]) -> None:
    main = layout(place)
    files = full_listing(main)
    assert out(place, "git log --format=%s; git status --porcelain; cat .git/HEAD", "f").split() == [
        "one", "ref:", "refs/heads/wt",
    ]  # fmt: skip
    out(place, "echo two > file; git commit -qam two", "f")
    assert full_listing(main) == files


def test_the_usual_day(place: Place) -> None:
    linked(place)
    script = """
        echo a > file; git stash -q; git stash list; git stash pop -q; git diff --stat
        git commit -qam a; git switch -qc topic; echo b > b; git add b; git commit -qm b
        git switch -q wt; git merge -q --no-edit topic; git rebase -q main; git tag t2; git branch -d topic
        git gc -q; git fsck --full --strict; git log --format=%s; git describe --tags
    """
    lines = out(place, script, "f").splitlines()
    assert "b" in lines
    assert "a" in lines
    assert not (place.project / "b").exists()


def test_only_objects_are_visible_of_the_repository(place: Place) -> None:
    main = linked(place)
    (main / ".git/hooks").mkdir(exist_ok=True)
    shown = out(
        place, f"ls -A {place.root}; ls -A {main} {main}/.git; echo x > {main}/.git/objects/x || echo refused", "f"
    )
    words = shown.split()
    assert "refused" in words
    assert "objects" in words
    assert not {"config", "hooks", "HEAD", "refs", "file"} & set(words)


def test_plain_apply_leaves_the_repository_alone(place: Place) -> None:
    main = linked(place)
    files, link_text = full_listing(main), (place.project / ".git").read_text()
    out(place, "echo two >> file; git commit -qam two; echo new > new", "f")
    session = place.session()
    changes = session.forks.changeset("f").changes
    assert b".git" not in {change.path for change in changes}
    assert {change.path for change in changes if not change.path.startswith(b".git/")} == {b"file", b"new"}
    assert all("type" not in change.flags and change.original_known for change in changes)
    landed = session.changes.apply("f")
    assert landed.conflicts == ()
    assert (place.project / "file").read_text() == "one\ntwo\n"
    assert (place.project / ".git").read_text() == link_text
    assert {name: stamp for name, stamp in full_listing(main).items() if name.startswith(".git/refs")} == {
        name: stamp for name, stamp in files.items() if name.startswith(".git/refs")
    }


@pytest.mark.parametrize("path", [b".git/config", b".git/hooks/post-commit"])
def test_nothing_lands_below_a_file(place: Place, path: bytes) -> None:
    nothing_lands_below_a_file(place, paths=[path])


@pytest.mark.parametrize("script", REPLACING)
def test_a_repository_that_the_fork_replaces(place: Place, script: str) -> None:
    replace_the_repository(place, script)


def test_dangerous_settings_stay_behind(place: Place) -> None:
    main = linked(place)
    git(main, "git config core.hooksPath /outside; git config core.fsmonitor /outside; git config my.own 'a;b'")
    listed = out(place, "git config --local --list", "f")
    assert "outside" not in listed
    assert "my.own=a;b" in listed


def test_a_fork_without_changes_follows_the_user(place: Place) -> None:
    linked(place)
    out(place, "git status", "f")
    (place.project / "file").write_text("user\n")
    git(place.project, "git commit -qam user")
    assert out(place, "git log --format=%s; git status --porcelain", "f").split() == ["user", "one"]


def test_a_fork_with_commits_stands_still(place: Place) -> None:
    main = linked(place)
    out(place, "echo new > new; git add new; git commit -qm fork", "f")
    (place.project / "file").write_text("user\n")
    git(place.project, "git commit -qam user")
    git(main, "git branch -f side; git gc -q --prune=now; git pack-refs --all")
    assert out(place, "git log --format=%s", "f").split() == ["fork", "one"]


def test_a_rollback_keeps_the_repository_of_its_commits(place: Place) -> None:
    linked(place)
    session = place.session()
    out(place, "echo x > x", "f")
    session.forks.checkpoint("f", "before")
    out(place, "git add x; git commit -qm fork", "f")
    session.forks.checkpoint("f", "after")
    session.forks.rollback("f", "before")
    (place.project / "file").write_text("user\n")
    git(place.project, "git commit -qam user")
    out(place, "git status", "f")
    session.forks.rollback("f", "after")
    assert out(place, "git log --format=%s", "f").split() == ["fork", "one"]
    child = session.forks.new("child", parent="f")
    session.forks.discard("f")
    assert out(place, "git log --format=%s", child.name).split() == ["fork", "one"]
    session.forks.discard("child")
    assert os.listdir(os.fsencode(session.vault.path) + b"/layers") == []


def test_a_stash_of_the_user(place: Place) -> None:
    linked(place)
    (place.project / "file").write_text("stashed\n")
    git(place.project, "git stash -q")
    assert out(place, "git stash list | wc -l; git stash pop -q; cat file", "f").split() == ["1", "stashed"]


def test_a_merge_in_progress(place: Place) -> None:
    linked(place)
    git(place.project, "git switch -q side 2>/dev/null || true; echo s > file; git commit -qam s; git switch -q wt")
    git(place.project, "echo w > file; git commit -qam w; git merge -q side >/dev/null || true")
    assert "All conflicts fixed" in out(place, "echo both > file; git add file; git status", "f")
    out(place, "git commit -qm merged", "f")
    assert out(place, "git log --format=%s -1", "f").strip() == "merged"


@pytest.mark.parametrize("mode", ["copy", "snapshot"])
def test_a_frozen_base(place: Place, mode: str) -> None:
    commit_on_a_frozen_base(place, mode)


def test_many_refs_and_packed_ones(place: Place) -> None:
    main = linked(place)
    git(
        main,
        "git pack-refs --all; for i in $(seq 150); do echo create refs/heads/n/$i HEAD; done | git update-ref --stdin",
    )
    git(main, "git update-ref refs/heads/side $(git commit-tree -m new 'HEAD^{tree}')")
    expected = git(place.project, "git for-each-ref")
    assert out(place, "git for-each-ref", "f") == expected
    assert out(place, "git rev-parse v1^{}", "f") == git(main, "git rev-parse v1^{}")
    git(main, "git symbolic-ref refs/heads/alias refs/heads/side")
    assert out(place, "git symbolic-ref refs/heads/alias", "g").strip() == "refs/heads/side"


def test_masked_files_are_never_dirty(place: Place) -> None:
    linked(place)
    (place.project / ".gitignore").write_text("nothing\n")
    (place.project / ".env").write_text("A=1\n")
    (place.project / "server.key").write_text("K\n")
    git(place.project, "git add .gitignore server.key; git commit -qm key; git branch -q here")
    shown = out(
        place, "git status --porcelain; echo x >> file; git add -A; git commit -qam all; git show --stat --format=", "f"
    )
    assert "server.key" not in shown
    assert ".env" not in shown


def test_alternates_of_the_repository(place: Place) -> None:
    """They may be a stranger's choice, so they are not shown unless the user names them."""
    main = make_main(place)
    git(place.root, f"git clone -q --shared main second; git -C second worktree add -q -b wt {place.project}")
    objects = os.fsencode(main / ".git/objects")
    result = inside(place, f"ls {main}/.git/objects 2>&1 || echo hidden", "f")
    assert b"hidden" in result.stdout
    assert [note for note in result.notes if "--read" in note]
    shown = Settings(read=(objects,))
    assert out(place, "git log --format=%s; git fsck --full", "f", shown).split() == ["one"]


def forged_common(place: Place) -> None:
    """A git directory in the project, that names a repository of the user's as its common directory."""
    (place.root / "stranger").mkdir()
    git(place.root / "stranger", "git init -q; echo secret > s; git add s; git commit -qm s")
    place.write("fake/HEAD", "ref: refs/heads/main\n")
    place.write("fake/commondir", "../../stranger/.git\n")
    place.write("fake/gitdir", f"{place.project}/.git\n")
    place.write(".git", "gitdir: fake\n")


def forged_objects(place: Place) -> None:
    """A whole repository beside the project, whose objects are a link."""
    main = linked(place)
    (place.root / "stranger").mkdir()
    git(place.root / "stranger", "git init -q; echo secret > s; git add s; git commit -qm s")
    (main / ".git/objects").rename(main / ".git/was")
    (main / ".git/objects").symlink_to(place.root / "stranger/.git/objects")


@pytest.mark.parametrize("forge", [forged_common, forged_objects])
def test_forged_repositories_show_nothing(place: Place, forge: Callable[[Place], None]) -> None:
    forge(place)
    stranger = place.root / "stranger"
    secret = git(stranger, "git rev-parse HEAD:s").strip()
    result = inside(place, f"git cat-file -p {secret} 2>&1 || true; ls -R {stranger} 2>&1 || true", "f")
    assert b"secret" not in result.stdout
    assert b"objects" not in result.stdout
    assert [note for note in result.notes if ".git" in note]


@pytest.mark.parametrize("name", ["packed-refs", "config", "shallow", "info/exclude", "worktrees/project/index"])
def test_links_in_a_repository_are_not_followed(place: Place, name: str) -> None:
    main = linked(place)
    secret = place.root / "secret"
    secret.write_text("[the]\n\tsecret = words\n")
    target = main / ".git" / name
    target.unlink(missing_ok=True)
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(secret)
    assert b"words" not in inside(place, "cat .git/* .git/info/* 2>/dev/null || true", "f").stdout


def test_a_submodule_of_a_work_tree(place: Place) -> None:
    main = make_main(place)
    upper = place.root / "super"
    upper.mkdir()
    git(
        upper,
        f"git init -q; git submodule add -q {main} x; git commit -qm super; git worktree add -q -b wt {place.project}",
    )
    git(place.project, "git submodule -q update --init")
    assert out(place, "git status --porcelain; git -C x log --format=%s", "f").split() == ["one"]
    out(place, "cd x; echo y > file; git commit -qam y; cd ..; git commit -qam up", "f")


BROKEN = {
    "leads nowhere": "gitdir: ../nowhere/.git/worktrees/x\n",
    "no link": "something else\n",
    "no repository": "gitdir: ../home\n",
    "another's": "gitdir: ../stranger/.git\n",
}


def test_a_file_that_names_no_directory_is_not_followed(place: Place) -> None:
    place.write(".git", BROKEN["no link"])
    with pytest.raises(UsageError, match=r"^\.git is not a git repository \(its file \.git begins with gitdir: "):
        find_repository(os.fsencode(place.project), b".git")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_link_is_one_note(place: Place, case: str) -> None:
    (place.root / "stranger").mkdir()
    git(place.root / "stranger", "git init -q; echo secret > s; git add s; git commit -qm s")
    place.write(".git", BROKEN[case])
    result = inside(place, "cat file 2>&1 || true; git log 2>&1 || true; echo x > x; ls ../stranger 2>&1 || true", "f")
    assert result.exit_code == 0
    assert b"secret" not in result.stdout
    assert len([note for note in result.notes if ".git" in note]) == 1, result.notes
    assert place.session().changes.apply("f").conflicts == ()
    assert (place.project / ".git").read_text() == BROKEN[case]


def test_a_repository_that_is_gone_later(place: Place) -> None:
    main = linked(place)
    out(place, "echo x > x; git add x; git commit -qm x", "f")
    main.rename(place.root / "elsewhere")
    result = inside(place, "echo y > y; git log 2>&1 || true", "f")
    assert result.exit_code == 0


def test_refs_in_another_format_are_said(place: Place) -> None:
    main = linked(place)
    with (main / ".git/config").open("a") as stream:
        stream.write("[extensions]\n\trefStorage = reftable\n")
    result = inside(place, "true", "f")
    assert [note for note in result.notes if "reftable" in note]


@pytest.mark.parametrize("kind", WAYS)
def test_other_ways_to_run(place: Place, kind: str) -> None:
    commit_in_another_way(place, kind)


def test_in_a_subdirectory(place: Place) -> None:
    linked(place)
    session: Session = place.session()
    result = session.run(
        [b"sh", b"-ec", with_settings("git rev-parse --show-prefix; git status --porcelain").encode()],
        cwd=os.fsencode(place.project / "sub"),
    )
    assert (result.exit_code, result.stdout) == (0, b"sub/\n")


def test_an_ordinary_repository_has_no_layer(place: Place) -> None:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    out(place, "git status", "f")
    assert place.session().vault.fork("f").state.repository is None
