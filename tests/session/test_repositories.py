"""Repositories of the project are left out of an apply unless they are asked for, and those that a fork made come as a
whole; with real git."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Place, full_listing, listing
from mudroom.cli.change.preview import preview
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.git.outcome import STAYING

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main -c protocol.file.allow=always"


def with_settings(script: str) -> str:
    return re.sub(r"(?<![.\w])git ", GIT + " ", script)


def git(directory: Path, script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", with_settings(script)], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    return place


def staged(place: Place, script: str, **how: object) -> tuple[object, object]:
    session, result = place.sh(with_settings(script))
    assert result.exit_code == 0, result.stderr
    return result, session.changes.apply(result.fork, **how)  # type: ignore[arg-type]


def test_a_commit_stays_in_the_fork(project: Place) -> None:
    before = {name: stamp for name, stamp in full_listing(project.project).items() if name.startswith(".git/")}
    _result, landed = staged(project, "echo two >> file; git commit -qam two")
    assert (project.project / "file").read_text() == "one\ntwo\n"
    after = {name: stamp for name, stamp in full_listing(project.project).items() if name.startswith(".git/")}
    assert after == before
    assert all(path.startswith(b".git/") for path in landed.withheld)  # type: ignore[attr-defined]
    assert git(project.project, "git log --format=%s").split() == ["one"]


def test_removing_the_repository_does_not_remove_it(project: Place) -> None:
    staged(project, "rm -rf .git file; echo new > new")
    assert sorted(path.name for path in project.project.iterdir()) == [".git", "new"]
    assert git(project.project, "git fsck --strict; git log --format=%s").split() == ["one"]


CLONE = "git clone -q --no-hardlinks ."


def flags(result: object) -> dict[bytes, tuple[str, ...]]:
    return {change.path: change.flags for change in result.changeset.changes}  # type: ignore[attr-defined]


def remarks(result: object) -> dict[bytes, str]:
    return {remark.path: remark.text for remark in result.changeset.remarks}  # type: ignore[attr-defined]


def test_a_clone_inside_comes_with_its_repository(project: Place) -> None:
    script = f"{CLONE} vendor/copy; cd vendor/copy; echo more > more; git add -A; git commit -qm more"
    result, landed = staged(project, script)
    assert landed.conflicts == landed.withheld == () == landed.applied.remarks  # type: ignore[attr-defined]
    copy = project.project / "vendor/copy"
    assert git(copy, "git status --porcelain; git fsck --full --strict; git log --format=%s").split() == ["more", "one"]
    assert all(not {"protected", "executes-later"} & {*each} for path, each in flags(result).items() if b".git" in path)
    session = project.session()
    assert session.changes.undo().conflicts == (), "git status has refreshed its index"
    assert not (project.project / "vendor").exists()
    session.changes.redo()
    assert git(copy, "git status --porcelain; git fsck --full --strict; git log --format=%s").split() == ["more", "one"]


def test_a_new_repository_in_which_the_user_has_worked_stays_whole(project: Place) -> None:
    staged(project, f"{CLONE} x; echo new > new")
    git(project.project / "x", "echo own > own; git add own; git commit -qm own")
    undone = project.session().changes.undo()
    assert [conflict.path for conflict in undone.conflicts] == [b"x/.git"]
    assert not (project.project / "new").exists()
    assert git(project.project / "x", "git fsck --full --strict; git log --format=%s").split() == ["own", "one"]


def test_a_repository_that_was_made_in_the_project_itself_comes_whole(place: Place) -> None:
    place.write("file", "one\n")
    _result, landed = staged(place, "git init -q; git add -A; git commit -qm one; git tag v1; git stash list")
    assert landed.withheld == ()  # type: ignore[attr-defined]
    assert git(place.project, "git status --porcelain; git fsck --full --strict; git tag").split() == ["v1"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("git -C x config core.fsmonitor /tmp/evil", "its config sets core.fsmonitor"),
        ("git -C x config remote.origin.url 'ext::sh -c evil'", "its config sets remote.origin.url"),
        ("git -C x config include.path ../evil", "its config sets include.path"),
        ("echo '[bad' >> x/.git/config", "its config is not understood: line "),
        ("rm x/.git/config; ln -s ../evil x/.git/config", "config is a symbolic link"),
        ("mkdir -p x/.git/hooks; echo evil > x/.git/hooks/post-commit", "it has the hook hooks/post-commit"),
        ("mkdir -p x/.git/info; echo '* filter=evil' > x/.git/info/attributes", "it has info/attributes"),
        ("mkdir -p x/.git/objects/info; echo /tmp > x/.git/objects/info/alternates", "it has objects/info/alternates"),
        ("mkdir -p x/.git/remotes; echo 'URL: ext::evil' > x/.git/remotes/o", "it has remotes/o"),
        ("GIT_SEQUENCE_EDITOR='sed -i 1iexec\\ false' git -C x rebase -q -i --root || true", "it has rebase-merge"),
    ],
)
def test_a_new_repository_that_is_not_harmless_is_left_out_whole(project: Place, script: str, reason: str) -> None:
    result, landed = staged(project, f"{CLONE} x; {script}")
    assert not (project.project / "x/.git").exists()
    text = remarks(result)[b"x/.git"]
    assert text.startswith("is a repository that the fork made; it is left out unless you name it, because " + reason)
    assert [remark.path for remark in landed.applied.remarks] == [b"x/.git"]  # type: ignore[attr-defined]
    assert {b"x/.git", b"x/.git/HEAD", b"x/.git/config"} <= {*landed.withheld}  # type: ignore[attr-defined]
    assert landed.untold == []  # type: ignore[attr-defined]
    assert all("protected" in each for path, each in flags(result).items() if path.startswith(b"x/.git"))


def test_a_new_repository_that_is_named_comes_whole(project: Place) -> None:
    script = f"{CLONE} x; git -C x config alias.x '!evil'; mkdir -p x/.git/hooks; echo evil > x/.git/hooks/pre-push"
    session, result = project.sh(with_settings(script))
    for paths in ([b"x"], [b"x/.git/HEAD"], [b"x/.git/config"], [b"x/.git/hooks"]):
        assert b"x/.git/HEAD" in session.changes.apply(result.fork, paths).withheld
    assert not (project.project / "x/.git").exists()
    assert session.changes.apply(result.fork, [b"x/.git"]).withheld == ()
    assert (project.project / "x/.git/hooks/pre-push").read_text() == "evil\n"
    assert git(project.project / "x", "git config alias.x; git fsck --strict; git status --porcelain") == "!evil\n"


def test_no_part_of_a_new_repository_is_applied_alone(project: Place) -> None:
    session, result = project.sh(with_settings(f"{CLONE} x"))
    session.changes.apply(result.fork, [b"x/.git/HEAD"], exact=True)
    assert git(project.project / "x", "git fsck --full --strict; git log --format=%s").split() == ["one"]
    assert git(project.project, "git status --porcelain").split() == ["??", "x/"]


def test_a_repository_that_the_project_has_meanwhile_stays_as_it_is(project: Place) -> None:
    session, result = project.sh(
        with_settings("mkdir x; cd x; git init -q; echo 1 > a; git add a; git commit -qm fork")
    )
    git(project.project, "mkdir x; cd x; git init -q; echo 2 > b; git add b; git commit -qm own")
    before = full_listing(project.project / "x/.git")
    landed = session.changes.apply(result.fork)
    assert b"x/.git/HEAD" in landed.withheld
    assert full_listing(project.project / "x/.git") == before
    assert (project.project / "x/a").exists()


def test_a_new_repository_across_a_checkpoint_is_judged_anew(project: Place) -> None:
    session = project.session()
    script = with_settings(f"{CLONE} x; git -C x config core.pager evil")
    session.run([b"sh", b"-c", script.encode()], fork="f")
    session.forks.checkpoint("f", "point")
    result = session.run([b"git", b"-C", b"x", b"config", b"--unset", b"core.pager"], fork="f")
    assert result.exit_code == 0 and remarks(result) == {}
    assert session.changes.apply("f").withheld == ()
    assert git(project.project / "x", "git status --porcelain; git log --format=%s").split() == ["one"]


def test_a_new_bare_repository(project: Place) -> None:
    _result, landed = staged(project, f"{CLONE} --bare store/lib.git")
    assert landed.withheld == ()  # type: ignore[attr-defined]
    assert git(project.project / "store/lib.git", "git fsck --full --strict; git log --format=%s").split() == ["one"]
    result, landed = staged(project, "git init -q --bare evil; git -C evil config core.sshCommand evil")
    assert not (project.project / "evil").exists()
    assert remarks(result)[b"evil"].endswith("its config sets core.sshcommand")
    assert b"evil/HEAD" in landed.withheld  # type: ignore[attr-defined]


def test_a_clone_with_submodules_comes_whole(project: Place) -> None:
    git(project.project, "mkdir lib; cd lib; git init -q; echo l > l; git add -A; git commit -qm lib")
    git(project.project, "mkdir top; cd top; git init -q; git submodule --quiet add file://$PWD/../lib lib")
    git(project.project / "top", "git commit -qm top")
    script = "git clone -q --no-hardlinks --recurse-submodules ./top x"
    result, landed = staged(project, script)
    assert landed.withheld == () == landed.applied.remarks, remarks(result)  # type: ignore[attr-defined]
    inner = "git submodule status; git -C lib fsck --full --strict"
    assert " lib (" in git(project.project / "x", f"git status --porcelain; git fsck --full --strict; {inner}")


def test_a_work_tree_that_the_fork_made_is_left_out(project: Place) -> None:
    script = (
        "git worktree add -q trees/wt -b feature; cd trees/wt; echo w > w; git add -A; git commit -qm w; echo u > u"
    )
    session, result = project.sh(with_settings(f"{script}; cd ../..; echo new > new"))
    told = remarks(result)[b"trees/wt"]
    assert "git worktree add trees/wt feature makes it" in told
    landed = session.changes.apply(result.fork)
    assert listing(project.project).keys() >= {"new", "trees"} and not (project.project / "trees/wt").exists()
    assert {b"trees/wt", b"trees/wt/w", b"trees/wt/.git"} <= {*landed.withheld}
    told_of = [remark.path for remark in landed.applied.remarks if remark.text != STAYING]
    assert told_of == [b"trees/wt"]
    assert not any(path.startswith((b"trees", b".git/worktrees")) and b"commondir" in path for path in landed.untold)


def test_a_work_tree_that_is_named_comes_as_plain_files(project: Place) -> None:
    session, result = project.sh(with_settings("git worktree add -q wt; echo w > wt/w; mkdir wt/d; echo d > wt/d/d"))
    landed = session.changes.apply(result.fork, [b"wt/d"])
    assert sorted(listing(project.project / "wt")) == ["d", "d/d"] and landed.withheld == ()
    landed = session.changes.apply(result.fork, [b"wt"])
    assert sorted(listing(project.project / "wt")) == ["d", "d/d", "file", "w"]
    assert landed.withheld == (b"wt/.git",)
    assert git(project.project, "git status --porcelain; git fsck --full --strict") == "?? wt/\n"


def test_a_submodule_that_only_the_fork_has_initialised(project: Place) -> None:
    git(project.root, "git init -q lib; cd lib; echo l > l; git add -A; git commit -qm lib")
    git(
        project.project, "git submodule --quiet add ../lib sub; git commit -qm sub; git submodule --quiet deinit -f sub"
    )
    session, result = project.sh(with_settings("git submodule --quiet update --init sub; echo x > new"))
    assert result.exit_code == 0, result.stderr
    landed = session.changes.apply(result.fork)
    assert [remark.path for remark in landed.applied.remarks if remark.text != STAYING] == [b"sub"]
    assert [path.name for path in (project.project / "sub").iterdir()] == []
    assert git(project.project, "git status --porcelain; git fsck --full --strict") == "?? new\n"


@pytest.mark.parametrize(
    ("hooks", "script", "flagged"),
    [
        ("tools/hooks", "echo x > tools/hooks/pre-commit; echo x > tools/other", {b"tools/hooks/pre-commit"}),
        (
            "./tools/hooks/",
            "mkdir tools/hooks/lib; echo x > tools/hooks/lib/a",
            {b"tools/hooks/lib", b"tools/hooks/lib/a"},
        ),
        (
            "tools/hooks",
            "mv tools old; ln -s old tools",
            {b"tools", b"tools/hooks", b"tools/hooks/kept", b"old/hooks/kept"},
        ),
        ("link", "echo x > tools/hooks/pre-commit", {b"tools/hooks/pre-commit"}),
        ("~/hooks", "echo x > tools/hooks/pre-commit", set()),
        ("/etc/hooks", "echo x > tools/hooks/pre-commit", set()),
    ],
)
def test_files_at_the_hooks_path_of_the_repository_are_flagged(
    project: Place, hooks: str, script: str, flagged: set[bytes]
) -> None:
    project.write("tools/hooks/kept", "#!/bin/sh\n", 0o755)
    (project.project / "link").symlink_to("tools/hooks")
    git(project.project, f"git config core.hooksPath '{hooks}'")
    result, landed = staged(project, script)
    assert {path for path, each in flags(result).items() if "executes-later" in each} == flagged
    assert landed.withheld == ()  # type: ignore[attr-defined]


def test_the_hooks_path_of_a_repository_around_the_project_or_of_a_work_tree(project: Place) -> None:
    project.write("sub/file", "x")
    git(project.project, "git config core.hooksPath sub/hooks; git config --add include.path ../sub/settings")
    inner = Place.__new__(Place)
    inner.__dict__.update(project.__dict__)
    inner.project = project.project / "sub"
    result, _landed = staged(inner, "mkdir hooks; echo x > hooks/pre-push; echo x > settings; echo x > other")
    executing = {path for path, each in flags(result).items() if "executes-later" in each}
    assert executing == {b"hooks", b"hooks/pre-push", b"settings"}
    git(project.project, "git worktree add -q ../tree; git config core.hooksPath .checks")
    inner.project = project.root / "tree"
    result, _landed = staged(inner, "mkdir .checks; echo x > .checks/pre-push")
    assert "executes-later" in flags(result)[b".checks/pre-push"]


def test_removing_a_nested_repository_leaves_it(project: Place) -> None:
    git(project.project, "mkdir sub; cd sub; git init -q; echo s > s; git add -A; git commit -qm sub")
    _result, landed = staged(project, "rm -rf sub")
    assert [path.name for path in (project.project / "sub").iterdir()] == [".git"]
    assert landed.conflicts == ()  # type: ignore[attr-defined]


def test_a_worktree_and_what_its_link_says(project: Place) -> None:
    git(project.project, "git worktree add -q ../tree")
    tree = project.root / "tree"
    link = (tree / ".git").read_text()
    moved = Place.__new__(Place)
    moved.__dict__.update(project.__dict__)
    moved.project = tree
    _result, landed = staged(moved, "rm -r .git; echo 'gitdir: /tmp/evil' > .git; echo more > more")
    assert (tree / ".git").read_text() == link
    assert (tree / "more").read_text() == "more\n"
    assert landed.withheld == (b".git",)  # type: ignore[attr-defined]
    _result, landed = staged(moved, "rm -r .git; echo 'gitdir: /tmp/evil' > .git", git=True)
    assert (tree / ".git").read_text() == link, "not even with the rest"


def test_a_submodule(project: Place) -> None:
    git(project.root, "git init -q lib; cd lib; echo l > l; git add -A; git commit -qm lib")
    git(project.project, "git submodule --quiet add ../lib lib; git commit -qm sub")
    link = (project.project / "lib/.git").read_text()
    staged(project, "echo 'gitdir: ../evil' > lib/.git; echo m > lib/m; echo evil >> .git/modules/lib/config", git=True)
    assert (project.project / "lib/.git").read_text() == link
    assert "evil" not in (project.project / ".git/modules/lib/config").read_text()
    assert (project.project / "lib/m").read_text() == "m\n"


def test_a_repository_without_a_dot_git_is_known_by_what_is_in_it(project: Place) -> None:
    git(project.project, "git init -q --bare store")
    config = (project.project / "store/config").read_text()
    script = "echo evil >> store/config; mkdir -p store/hooks; echo evil > store/hooks/pre-receive; echo f > store/f"
    result, landed = staged(project, script)
    assert (project.project / "store/config").read_text() == config
    assert not (project.project / "store/hooks/pre-receive").exists()
    assert (project.project / "store/f").exists()
    flags = {change.path: change.flags for change in result.changeset.changes}  # type: ignore[attr-defined]
    assert {"executes-later", "protected"} <= set(flags[b"store/config"]) & set(flags[b"store/hooks/pre-receive"])
    assert b"store/config" in landed.withheld  # type: ignore[attr-defined]


def test_a_repository_without_a_dot_git_is_not_made_in_two_steps(project: Place) -> None:
    staged(
        project, "git init -q --bare o; mkdir -p store; mv o/objects o/refs store; echo evil > store/config; rm -rf o"
    )
    assert (project.project / "store/config").exists(), "it is no repository yet"
    _result, landed = staged(project, "echo ref: refs/heads/main > store/HEAD")
    assert landed.withheld == (b"store/HEAD",)  # type: ignore[attr-defined]


def test_nor_across_a_checkpoint(project: Place) -> None:
    session = project.session()
    script = "git init -q --bare o; mkdir store; mv o/objects o/refs store; echo evil > store/config; rm -rf o"
    session.run([b"sh", b"-c", with_settings(script).encode()], fork="f")
    session.forks.checkpoint("f", "point")
    session.run([b"sh", b"-c", b"echo ref: refs/heads/main > store/HEAD"], fork="f")
    assert b"store/config" in session.changes.apply("f").withheld


def test_a_repository_whose_settings_are_elsewhere(project: Place) -> None:
    script = "mkdir store other; echo ref: refs/heads/main > store/HEAD; echo ../other > store/commondir"
    _result, landed = staged(project, script + "; mkdir other/objects other/refs; echo evil > other/config")
    assert landed.withheld == (b"store", b"store/HEAD", b"store/commondir")  # type: ignore[attr-defined]


def test_a_change_of_a_link_is_told_before(project: Place) -> None:
    git(project.project, "git worktree add -q ../tree")
    moved = Place.__new__(Place)
    moved.__dict__.update(project.__dict__)
    moved.project = project.root / "tree"
    result, _landed = staged(moved, "rm -r .git; echo 'gitdir: /tmp/evil' > .git")
    (change,) = result.changeset.changes  # type: ignore[attr-defined]
    assert change.flags == ("executes-later", "protected", "content")
    _result, landed = staged(moved, "rm -r .git; echo 'gitdir: /tmp/evil' > .git", paths=[b".git"])
    assert landed.withheld == ()  # type: ignore[attr-defined]


def test_of_a_file_in_it_that_is_left_out_not_even_the_directory_comes(place: Place) -> None:
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    session = place.session()
    session.forks.new("f")
    script = b"mkdir .git/objects .git/hooks; echo 1 > .git/objects/1; echo 2 > .git/hooks/post-commit"
    session.run([b"sh", b"-c", script], fork="f")
    with session.alone("a test"):
        landed = session.changes.apply("f", [b".git/objects/1"], exact=True)
        assert landed.withheld[-1] == b".git/objects/1"
        assert sorted(listing(place.project)) == [".git", ".git/HEAD"]
        session.changes.apply("f", [b".git/hooks/post-commit"], exact=True)
    assert sorted(listing(place.project)) == [".git", ".git/HEAD", ".git/hooks", ".git/hooks/post-commit"]


def test_a_bare_repository_in_other_spellings_is_left_out(place: Place) -> None:
    """A project on vfat, NTFS or a directory with casefold: git reads ``Config`` of ``docs`` as its config."""
    script = "mkdir -p docs/Objects docs/refs; echo x > docs/head; printf '[core]\\n fsmonitor = evil\\n' > docs/Config"
    session, result = place.sh(script)
    landed = session.changes.apply(result.fork)
    assert not (place.project / "docs").exists()
    assert b"docs/Config" in landed.withheld
    assert any("its Config sets core.fsmonitor" in remark.text for remark in result.changeset.remarks)


def test_the_last_part_of_a_repository_in_another_spelling_is_left_out(place: Place) -> None:
    for path in ("docs/Objects/x", "docs/REFS/x", "docs/Config"):
        place.write(path, "x\n")
    session, result = place.sh("echo x > docs/Head; echo y > docs/other")
    landed = session.changes.apply(result.fork)
    assert landed.withheld == (b"docs/Head",)
    assert (place.project / "docs/other").exists()


@pytest.mark.parametrize(
    "script",
    [
        "mv notes .git/x",
        "mkdir -p a/.mudroom; mv notes a/.mudroom/x",
        "mv notes .GIT",
        "git init -q --bare bare; git -C bare config core.fsmonitor evil; mv notes bare/x",
        "git init -q sub; git -C sub config core.fsmonitor evil; mv notes sub/.git/x",
        "git worktree add -q tree; mv notes tree/x",
    ],
)
def test_a_file_that_is_moved_to_where_nothing_is_applied_is_shown_as_deleted(project: Place, script: str) -> None:
    """A rename is shown as one change. Its new path would be left out, and its old path deleted all the same."""
    project.write("notes", "important\n")
    session, result = project.sh(with_settings(script))
    notes = next(change for change in result.changeset.changes if change.path == b"notes")
    assert (notes.verb, notes.moved_to) == ("deleted", b"")
    shown = "\n".join(preview("sh would change", result.changeset, Terminal({})))
    assert re.search(r"^  notes +deleted, -1$", shown, re.M), shown
    session.changes.apply(result.fork)
    assert not (project.project / "notes").exists(), "it is applied as it was shown"


def test_the_directory_that_a_file_is_moved_to_names_it(place: Place) -> None:
    place.write("notes", "important\n")
    _session, result = place.sh("mkdir build; mv notes build/; for i in $(seq 20); do echo $i > build/$i; done")
    shown = "\n".join(preview("sh would change", result.changeset, Terminal({})))
    assert re.search(r"^  build/ +\+20 →1 files, 61 B, renamed from notes$", shown, re.M), shown


@pytest.mark.parametrize(
    "setup",
    [
        "ln -s ../../tools/check .git/hooks/pre-commit",
        "rm -rf .git/hooks; ln -s ../tools .git/hooks",
        "mkdir -p .git/hooks; echo 'exec sh \"$(git rev-parse --show-toplevel)/tools/check\"' > .git/hooks/pre-commit",
        "mkdir .husky; echo 'sh tools/check' > .husky/pre-commit; git config core.hooksPath .husky/_",
        "mkdir .githooks; echo 'sh tools/check' > .githooks/pre-push; git config core.hooksPath .githooks",
        'mkdir their; echo "sh $PWD/tools/check" > their/pre-push; git config core.hooksPath "$PWD/their"',
        "mkdir their; echo 'cd tools && . ./check' > their/h; echo '. their/h' > their/pre-commit;"
        ' echo \'sh "$(dirname "$0")/../tools/check"\' > their/commit-msg; git config core.hooksPath their',
        "echo 'sh tools/check' > pre-commit; git config core.hooksPath .",
        "mkdir their; (cd their; touch $(seq 99)); echo 'sh tools/check' > their/pre-push;"
        " git config core.hooksPath their",
        "git config core.fsmonitor tools/check",
        "git config filter.x.clean './tools/check %f'",
        "git config alias.z '!sh tools/check'",
        "git config include.path ../more; printf '[diff \"x\"]\\n textconv = sh tools/check\\n' > more",
    ],
)
def test_a_file_that_the_users_own_settings_and_hooks_run_is_flagged(project: Place, setup: str) -> None:
    project.write("tools/check", "true\n")
    project.write("tools-notes", "true\n")
    git(project.project, setup)
    _session, result = project.sh("echo evil >> tools/check; echo more >> tools-notes")
    runs = {change.path: change.runs for change in result.changeset.changes if change.entry.kind == "file"}
    assert runs.pop(b"tools-notes") == ""
    assert set(runs) == {b"tools/check"}
    assert runs[b"tools/check"].startswith("at the next git co")


@pytest.mark.parametrize("setup", ["echo 'sh check' > .git/hooks/pre-commit", "git config alias.z '!sh check'"])
def test_a_file_that_a_hook_names_by_one_word(project: Place, setup: str) -> None:
    project.write("check", "true\n")
    git(project.project, setup)
    _session, result = project.sh("echo evil >> check; mkdir sh; echo x > sh/notes")
    runs = {change.path: change.runs for change in result.changeset.changes}
    assert runs == {b"check": "at the next git command", b"sh": "", b"sh/notes": ""}
