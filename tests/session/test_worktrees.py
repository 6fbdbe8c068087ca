"""Projects whose ``.git`` is a file: linked work trees and submodules, with real git.

Their repository lies outside of the project. Commands use a private one with the same history; commits are imported.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Place, act_as, full_listing
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.both_users,
]
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_commits_of_a_fork_come_over(place: Place, layout: str) -> None:
    repository = LAYOUTS[layout](place)
    before = git(repository, "git for-each-ref"), git(repository, "git worktree list")
    files = full_listing(repository)
    assert out(place, "git status --porcelain --branch", "f").splitlines() == ["## wt"]
    out(
        place,
        "echo two >> file; git add file; git commit -qm two; echo three > new; git add new; git commit -qm 3",
        "f",
    )
    assert out(place, "git log --format=%s; git status --porcelain", "f").split() == ["3", "two", "one"]
    assert full_listing(repository) == files, "the real repository was written"
    session = place.session()
    brought = session.changes.bring_commits("f")
    assert [commit.subject for commit in brought.commits] == ["two", "3"]
    assert git(place.project, "git log --format=%s mudroom/f").split() == ["3", "two", "one"]
    assert git(place.project, "git fsck --full --strict 2>&1 || echo bad").count("bad") == 0
    after = git(repository, "git for-each-ref"), git(repository, "git worktree list")
    assert [line for line in after[0].splitlines() if "mudroom/" not in line] == before[0].splitlines()
    assert after[1] == before[1]


@pytest.mark.parametrize("layout", [relative, link], ids=["relative", "link"])
def test_other_ways_to_the_same_repository(place: Place, layout: Callable[[Place], Path]) -> None:
    main = layout(place)
    files = full_listing(main)
    assert out(place, "git log --format=%s; git status --porcelain; cat .git/HEAD", "f").split() == [
        "one", "ref:", "refs/heads/wt",
    ]  # fmt: skip
    out(place, "echo two > file; git commit -qam two", "f")
    assert full_listing(main) == files
    assert len(place.session().changes.bring_commits("f").commits) == 1


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
    assert [commit.subject for commit in session.changes.bring_commits("f").commits] == ["two"]


@pytest.mark.parametrize("how", [{"git": True}, {"paths": [b".git/config"]}, {"paths": [b".git/hooks/post-commit"]}])
def test_nothing_lands_below_a_file(place: Place, how: dict[str, object]) -> None:
    main = linked(place)
    files, link_text = full_listing(main), (place.project / ".git").read_text()
    script = (
        "git config a.b c; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit; chmod +x .git/hooks/post-commit"
    )
    out(place, script + "; echo two >> file; git -c core.hooksPath=/x commit -qam two", "f")
    session = place.session()
    try:
        session.changes.apply("f", **how)  # type: ignore[arg-type]
    except UsageError:
        pass
    assert (place.project / ".git").read_text() == link_text
    assert {k: v for k, v in full_listing(main).items() if "hooks" in k or k == ".git/config"} == {
        k: v for k, v in files.items() if "hooks" in k or k == ".git/config"
    }


@pytest.mark.parametrize("script", ["rm -r .git", "rm -r .git; echo gitdir: /x > .git", "rm -r .git; git init -q"])
@pytest.mark.parametrize("how", [{}, {"git": True}])
def test_a_repository_that_the_fork_replaces(place: Place, script: str, how: dict[str, object]) -> None:
    main = linked(place)
    files, link_text = full_listing(main), (place.project / ".git").read_text()
    result = inside(place, script + "; echo new > new", "f")
    assert result.exit_code == 0, result.stderr
    if "init" not in script:
        assert {change.path for change in result.changeset.changes} == {b".git", b"new"}
    place.session().changes.apply("f", **how)  # type: ignore[arg-type]
    assert (place.project / ".git").read_text() == link_text
    assert (place.project / "new").exists()
    assert full_listing(main) == files


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
    session = place.session()
    session.changes.bring_commits("f")
    git(place.project, "git merge -q --no-edit mudroom/f; git fsck --full --strict")


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
    linked(place)
    settings = Settings(view="copy") if mode == "copy" else None
    if mode == "snapshot":
        place.session().forks.new("f", snapshot=True)
        (place.project / "file").write_text("user\n")
        git(place.project, "git commit -qam user")
    out(place, "git status --porcelain > /dev/stderr; echo two >> file; git commit -qam two", "f", settings)
    assert out(place, "git log --format=%s; git status --porcelain", "f", settings).split() == ["two", "one"]
    assert [c.subject for c in place.session().changes.bring_commits("f").commits] == ["two"]


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


def test_several_work_trees(place: Place) -> None:
    main = linked(place)
    git(main, "git worktree add -q ../third side")
    before = full_listing(place.root / "third"), git(main, "git worktree list --porcelain")
    out(place, "git switch -q side; echo s > s; git add s; git commit -qm s", "f")
    place.session().changes.bring_commits("f")
    assert (full_listing(place.root / "third"), git(main, "git worktree list --porcelain")) == before


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
    session = place.session()
    assert len(session.changes.bring_commits("f", repository=b"x/.git").commits) == 1
    assert len(session.changes.bring_commits("f").commits) == 1


BROKEN = {
    "leads nowhere": "gitdir: ../nowhere/.git/worktrees/x\n",
    "no link": "something else\n",
    "no repository": "gitdir: ../home\n",
    "another's": "gitdir: ../stranger/.git\n",
}


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
    with pytest.raises(UsageError):
        place.session().changes.bring_commits("f")
    (place.root / "elsewhere").rename(main)
    assert [c.subject for c in place.session().changes.bring_commits("f").commits] == ["x"]


def test_refs_in_another_format_are_said(place: Place) -> None:
    main = linked(place)
    with (main / ".git/config").open("a") as stream:
        stream.write("[extensions]\n\trefStorage = reftable\n")
    result = inside(place, "true", "f")
    assert [note for note in result.notes if "reftable" in note]


@pytest.mark.parametrize("kind", ["level 0", "no namespaces", "background", "mount"])
def test_other_ways_to_run(place: Place, kind: str) -> None:
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
    assert [commit.subject for commit in session.changes.bring_commits("f").commits] == ["two"]


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


def test_a_branch_and_its_work_tree_move_with_git(place: Place) -> None:
    main = linked(place)
    others = "git rev-parse main side v1; git -C ../main status --porcelain --branch"
    before = git(place.project, others)
    out(place, "echo two >> file; git commit -qam two; git branch new; git tag t2", "f")
    session = place.session()
    landed = session.changes.apply("f", git=True)
    assert landed.conflicts == ()
    assert git(place.project, "git log --format=%s; git status --porcelain; git symbolic-ref HEAD").split() == [
        "two", "one", "refs/heads/wt",
    ]  # fmt: skip
    assert git(place.project, "git rev-parse new t2").split() == git(place.project, "git rev-parse wt wt").split()
    assert git(place.project, others) == before
    assert git(main, "git fsck --full --strict") == ""
    session.changes.undo()
    assert git(place.project, "git log --format=%s; git status --porcelain").split() == ["one"]
    session.changes.redo()
    assert git(place.project, "git log --format=%s; git status --porcelain").split() == ["two", "one"]


def test_no_two_work_trees_get_one_branch(place: Place) -> None:
    main = linked(place)
    git(main, "git worktree add -q ../third side")
    out(place, "git switch -q side; echo s > s; git add s; git commit -qm s", "f")
    before = git(main, "git worktree list --porcelain")
    place.session().changes.apply("f", git=True)
    assert git(main, "git worktree list --porcelain") == before
    assert git(main, "git log --format=%s -1 mudroom/f").split() == ["s"]


def test_another_repository_than_its_own_is_never_written(place: Place) -> None:
    """A stranger's archive may have a ``.git`` file that leads to a repository of the user's."""
    (place.root / "stranger").mkdir()
    git(place.root / "stranger", "git init -q; echo s > s; git add s; git commit -qm s")
    files = full_listing(place.root / "stranger")
    place.write(".git", "gitdir: ../stranger/.git\n")
    out(place, "rm .git; git init -q; echo x > x; git add x; git commit -qm x", "f")
    session = place.session()
    with pytest.raises(UsageError, match="does not name this directory"):
        session.changes.bring_commits("f")
    assert full_listing(place.root / "stranger") == files


def test_no_commit_goes_to_a_work_tree_that_a_link_of_the_project_leads_to(place: Place) -> None:
    """The fork replaces the link by a directory with a repository: that is not the one at the link's end."""
    main, tree = place.root / "main", place.root / "tree"
    main.mkdir()
    git(main, f"git init -q; git commit -q --allow-empty -m one; git worktree add -q {tree}")
    (place.project / "sub").symlink_to(tree)
    done = inside(
        place,
        "rm sub; mkdir sub; cd sub; git init -q; echo x > f; git add .; git commit -qm theirs; git log --format=%s",
    )
    assert done.stdout == b"theirs\n", done.stderr
    before = git(main, "git for-each-ref; git count-objects")
    session = place.session()
    with (
        session.alone("a test"),
        pytest.raises(UsageError, match="belongs to a repository outside of the project, whose work tree is not in it"),
    ):
        session.changes.bring_commits(done.fork, repository=b"sub/.git")
    assert git(main, "git for-each-ref; git count-objects") == before
