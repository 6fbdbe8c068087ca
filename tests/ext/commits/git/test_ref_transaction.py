"""Refs move all or none, forward and back, by git's own locks."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from handgit import fsck, git, moves_of

from mudroom.ext.commits.core.ref_plan import HEAD, STASH, RefMove, RepositoryMoves
from mudroom.ext.commits.git.ref_transaction import perform_moves, reversed_moves, without_packed
from mudroom.ext.commits.git.write import RepositoryWriter
from tiers import pairs

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
MAIN, NEW, OLD, THIRD = b"refs/heads/main", b"refs/heads/mudroom/new", b"refs/heads/old", b"refs/tags/a/b"
SHOW = "git for-each-ref; cat .git/HEAD; git ls-files -s; git stash list"


class Project:
    """A repository with the commits one and two; ``main`` is checked out at one, ``old`` at one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        git(path, "git init -q; echo 1 > file; echo s > same; git add -A; git commit -qm one; git branch old")
        git(path, "echo 2 > file; echo n > new; git add -A; git commit -qm two; git branch two")
        self.one, self.two = git(path, "git rev-parse main^ main").split()
        git(path, "git reset -q --hard HEAD^")

    def move(self, name: bytes, before: str = "", after: str = "") -> RefMove:
        return RefMove(name, before.encode(), after.encode())

    def several(self) -> RepositoryMoves:
        """A branch that moves, a branch and a tag that are new, and a branch that is removed."""
        return moves_of(
            self.path,
            self.move(b"refs/heads/two", self.two, self.one),
            self.move(NEW, "", self.two),
            self.move(THIRD, "", self.two),
            self.move(OLD, self.one, ""),
        )

    def checkout(self) -> RepositoryMoves:
        """The branch that is checked out moves, with its index."""
        return moves_of(self.path, self.move(MAIN, self.one, self.two), checkout=(self.one, self.two))

    def show(self) -> str:
        return git(self.path, SHOW)

    def write(self, two: bool) -> None:
        """Write the files as an apply of the fork's whole work tree does, or its undo."""
        (self.path / "file").write_text("2\n" if two else "1\n")
        if two:
            (self.path / "new").write_text("n\n")
        else:
            (self.path / "new").unlink()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def back(moves: RepositoryMoves) -> list[str]:
    return [failure.reason for failure in perform_moves(reversed_moves(moves), back=True)]


def forward(moves: RepositoryMoves) -> list[tuple[bytes, str]]:
    return [(failure.ref, failure.reason) for failure in perform_moves(moves)]


def test_a_ref_does_not_move_to_a_commit_that_has_been_pruned(project: Project) -> None:
    """A redo after ``git gc`` would damage the repository."""
    moves = moves_of(project.path, project.move(NEW, after=project.two))
    git(project.path, "git branch -D two; git reflog expire --expire=now --all; git prune --expire=now")
    before = project.show()
    assert forward(moves) == [(NEW, "is to have a commit that is not in the repository any more")]
    assert project.show() == before and fsck(project.path) == ""


# --- all or none ---


@pytest.mark.parametrize("prepare", ["true", "git pack-refs --all", "git tag -am t t; git pack-refs --all; git tag u"])
def test_several_refs_there_and_back(project: Project, prepare: str) -> None:
    git(project.path, prepare)
    before, moves = project.show(), project.several()
    assert forward(moves) == []
    assert git(project.path, "git rev-parse two mudroom/new a/b").split() == [project.one, project.two, project.two]
    assert git(project.path, "git branch --list old") == ""
    after = project.show()
    assert forward(moves) == [] and project.show() == after, "a repeat is harmless"
    assert back(moves) == []
    assert project.show() == before
    assert not (project.path / ".git/refs/heads/mudroom").exists()
    assert fsck(project.path) == "" and list(project.path.rglob("*.lock")) == []


@pytest.mark.parametrize(
    ("script", "ref", "reason"),
    [
        ("git branch -f two main", b"", ""),
        ("git branch -f old two", OLD, "has moved since"),
        ("git tag a/b main", THIRD, "has moved since"),
        ("git branch -D two", b"refs/heads/two", "is not there any more"),
        ("git symbolic-ref refs/heads/two refs/heads/main", b"refs/heads/two", "has moved since"),
        ("git worktree add -q ../tree old", OLD, "is checked out"),
        ("touch .git/refs/heads/old.lock", OLD, "cannot be moved: another git command is at work"),
        ("mkdir -p .git/refs/tags/a; touch .git/refs/tags/a/b.lock", THIRD, "another git command is at work"),
        ("touch .git/packed-refs.lock", b"packed-refs", "another git command is at work"),
        ("mkdir -p .git/refs/tags/a/b; touch .git/refs/tags/a/b/c", THIRD, "there are files in"),
        ("git tag a main", THIRD, "cannot be written"),
    ],
)
def test_none_moves_if_a_ref_cannot(project: Project, script: str, ref: bytes, reason: str) -> None:
    git(project.path, script)
    before = project.show()
    failures = forward(project.several())
    assert [name for name, _reason in failures] == ([ref] if ref else [])
    assert all(reason in told and "\n" not in told for _name, told in failures)
    if ref:
        assert project.show() == before
    locks = {path.name for path in project.path.rglob("*.lock")}
    assert locks <= {script.rpartition("/")[2]}, "only the lock of the other command is left"


def test_a_ref_that_moves_while_locks_are_taken(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is compared again under the lock, and the index stays, too."""
    moves, real = project.checkout(), RepositoryWriter.create_lock

    def late(*arguments: Any, **named: Any) -> None:
        git(project.path, "git commit -q --allow-empty -m meanwhile") if not called else None
        called.append(1)
        real(*arguments, **named)

    called: list[int] = []
    index = (project.path / ".git/index").read_bytes()
    monkeypatch.setattr(RepositoryWriter, "create_lock", late)
    assert forward(moves) == [(MAIN, "has moved since")]
    assert (project.path / ".git/index").read_bytes() == index
    assert git(project.path, "git log --format=%s; git status --porcelain").split() == ["meanwhile", "one"]
    assert list(project.path.rglob("*.lock")) == []


def test_git_commands_between_a_look_and_its_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real git, in the moment before the lock that would have kept it out."""
    real = RepositoryWriter.create_lock
    cases = (
        (
            project.several(),
            b"packed-refs",
            "git pack-refs --all",
            "another git command has packed refs meanwhile (try again)",
        ),
        (project.checkout(), b"index", "echo x > x; git add x", "the index has changed meanwhile (try again)"),
        (project.checkout(), b"index", "git update-index --split-index", SPLIT),
    )
    for moves, name, script, told in cases:

        def late(
            writer: RepositoryWriter, lock: bytes, *words: Any, at: bytes = name, script: str = script, **how: Any
        ) -> None:
            if lock == at:
                git(project.path, script)
            real(writer, lock, *words, **how)

        before = git(project.path, "git for-each-ref; cat .git/HEAD")
        monkeypatch.setattr(RepositoryWriter, "create_lock", late)
        ((_ref, reason),) = forward(moves)
        assert reason == f"cannot be moved: {told}"
        assert git(project.path, "git for-each-ref; cat .git/HEAD") == before, told
        assert list(project.path.rglob("*.lock")) == []


SPLIT = "the index is split, sparse or has files in conflict (git status shows it)"


def test_empty_directories_in_the_way(project: Project) -> None:
    (project.path / ".git/refs/tags/a/b/c/d").mkdir(parents=True)
    assert forward(project.several()) == []
    assert git(project.path, "git rev-parse a/b").strip() == project.two


def test_removing_a_ref_keeps_the_other_packed_refs(project: Project) -> None:
    git(project.path, "git tag -am t t; git pack-refs --all")
    assert forward(moves_of(project.path, project.move(OLD, project.one, ""))) == []
    assert git(project.path, "git for-each-ref --format='%(refname:short)'").split() == ["main", "two", "t"]
    assert git(project.path, "git rev-parse 't^{}'").strip() == project.one
    assert fsck(project.path) == ""


def test_without_packed() -> None:
    text = b"# pack-refs with: peeled fully-peeled sorted \n1 refs/heads/a\n2 refs/tags/t\n^3\n4 refs/tags/u\n^5\n"
    assert without_packed(text, {b"refs/tags/t"}) == text.replace(b"2 refs/tags/t\n^3\n", b"")
    assert without_packed(text, {b"refs/tags/u"}) == text.replace(b"4 refs/tags/u\n^5\n", b"")
    assert without_packed(text, {b"refs/tags"}) == text


@pytest.mark.parametrize(("name", "which"), pairs(["rename", "fsync", "open", "unlink"], range(8)))
def test_a_disk_that_fails(project: Project, monkeypatch: pytest.MonkeyPatch, name: str, which: int) -> None:
    """A repeat completes the moves; no lock is left, and the repository is whole at any time."""
    moves, real, calls = project.several(), getattr(os, name), iter(range(1000))

    def failing(*arguments: Any, **named: Any) -> Any:
        writes = name != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT)
        if writes and next(calls) == which:
            raise OSError(errno.EIO, os.strerror(errno.EIO), arguments[0])
        return real(*arguments, **named)

    before = project.show()
    with monkeypatch.context() as patched:
        patched.setattr(os, name, failing)
        try:
            perform_moves(moves)
        except OSError:
            assert name in ("rename", "unlink", "fsync") or project.show() == before
    assert fsck(project.path) == ""
    for lock in project.path.rglob("*.lock"):
        assert name == "unlink", "only a lock that cannot be removed is left"
        lock.unlink()
    assert forward(moves) == []
    assert back(moves) == []
    assert project.show() == before


# --- the checked-out branch and its index ---


def test_the_index_moves_with_its_branch(project: Project) -> None:
    before, moves = project.show(), project.checkout()
    project.write(two=True)
    assert forward(moves) == []
    assert git(project.path, "git status --porcelain; git log --format=%s").split() == ["two", "one"]
    assert git(project.path, "git diff-files") == "", "git's plumbing sees it as unmodified at once"
    assert (
        git(project.path, "git reflog -1 --format=%gs; git reflog -1 --format=%gs main").splitlines()
        == ["mudroom: apply of agent"] * 2
    )
    assert forward(moves) == [] and git(project.path, "git status --porcelain") == "", "a repeat is harmless"
    project.write(two=False)
    assert back(moves) == []
    assert project.show() == before and git(project.path, "git status --porcelain") == ""


def test_staged_files_of_the_user_stay(project: Project) -> None:
    git(project.path, "echo mine > mine; echo changed > same; git add mine same; echo 9 > file; git add file")
    moves = project.checkout()
    (project.path / "new").write_text("n\n")
    assert forward(moves) == []
    assert git(project.path, "git diff --cached --name-status").split() == ["M", "file", "A", "mine", "M", "same"]
    assert back(moves) == []
    assert git(project.path, "git diff --cached --name-status").split() == ["M", "file", "A", "mine", "M", "same"]


@pytest.mark.parametrize("crash", ["refs", "index"])
def test_a_crash_in_between(project: Project, crash: str) -> None:
    """After a killed process the same moves complete what it began."""
    moves = project.checkout()
    project.write(two=True)
    index = (project.path / ".git/index").read_bytes()
    assert forward(moves) == []
    if crash == "index":
        (project.path / ".git/index").write_bytes(index)
    else:
        (project.path / ".git/refs/heads/main").write_text(project.one + "\n")
    assert forward(moves) == []
    assert git(project.path, "git status --porcelain; git log --format=%s").split() == ["two", "one"]


def test_head_goes_to_a_new_branch_and_back(project: Project) -> None:
    before = project.show()
    moves = moves_of(
        project.path,
        project.move(NEW, "", project.two),
        RefMove(HEAD, MAIN, NEW),
        checkout=(project.one, project.two),
    )
    project.write(two=True)
    assert forward(moves) == []
    assert git(project.path, "git symbolic-ref HEAD; git status --porcelain").split() == [NEW.decode()]
    assert forward(moves) == []
    project.write(two=False)
    assert back(moves) == []
    assert project.show() == before and git(project.path, "git status --porcelain") == ""


@pytest.mark.parametrize(
    ("script", "ref"),
    [
        ("touch .git/index.lock", HEAD),
        ("echo x > .git/index", HEAD),
        ("git switch -q old", HEAD),
        ("touch .git/HEAD.lock", HEAD),
        ("git commit -q --allow-empty -m mine", MAIN),
    ],
)
def test_none_moves_if_the_checkout_cannot(project: Project, script: str, ref: bytes) -> None:
    git(project.path, script)
    moves = moves_of(
        project.path,
        project.move(MAIN, project.one, project.two),
        project.move(NEW, "", project.two),
        RefMove(HEAD, MAIN, NEW),
        checkout=(project.one, project.two),
    )
    files = [".git/HEAD", ".git/index", "file"]
    before = [(project.path / name).read_bytes() for name in files], git(project.path, "git for-each-ref")
    assert [name for name, _reason in forward(moves)] == [ref]
    assert ([(project.path / name).read_bytes() for name in files], git(project.path, "git for-each-ref")) == before
    assert git(project.path, "git rev-parse old").strip() == project.one
    assert not (project.path / ".git/refs/heads/mudroom").exists()


def test_undo_leaves_the_index_of_another_branch_alone(project: Project) -> None:
    moves = project.checkout()
    project.write(two=True)
    assert forward(moves) == []
    git(project.path, "git switch -qc mine")
    index = git(project.path, "git ls-files -s")
    assert back(moves) == []
    assert git(project.path, "git rev-parse main").strip() == project.one
    assert git(project.path, "git ls-files -s") == index and git(project.path, "git status --porcelain") == ""


def test_permissions_of_a_shared_repository(project: Project) -> None:
    git(project.path, "git config core.sharedRepository group")
    previous = os.umask(0o077)
    try:
        assert forward(project.checkout()) == [] and forward(project.several()._replace(moves=())) == []
        assert forward(moves_of(project.path, project.move(THIRD, "", project.two))) == []
    finally:
        os.umask(previous)
    for name in ("index", "refs/heads/main", "refs/tags/a/b"):
        assert (project.path / ".git" / name).stat().st_mode & 0o660 == 0o660, name
    assert (project.path / ".git/refs/tags/a").stat().st_mode & 0o2770 == 0o2770


# --- stashes ---


def stashed(project: Project) -> RepositoryMoves:
    """Two stashes to add, whose commits the repository has already."""
    commits = []
    for text in ("first", "second"):
        git(project.path, f"echo {text} > file; git stash push -qm {text}")
        commits.append(git(project.path, "git rev-parse stash").strip().encode())
        git(project.path, "git stash drop -q")
    before = git(project.path, "git rev-parse -q --verify stash || true").strip().encode()
    entries = tuple(zip(commits, (b"first", b"second"), strict=True))
    return moves_of(project.path, RefMove(STASH, before, commits[-1], entries))


def stashes(project: Project) -> list[str]:
    return git(project.path, "git stash list --format=%gs").splitlines()


@pytest.mark.parametrize("own", [[], ["mine"]])
def test_stashes_there_and_back(project: Project, own: list[str]) -> None:
    for name in own:
        git(project.path, f"echo {name} > file; git stash push -qm {name}")
    before, moves = stashes(project), stashed(project)
    assert forward(moves) == []
    assert stashes(project) == ["second", "first", *before]
    assert git(project.path, "git stash show -p stash@{1}").splitlines()[-1] == "+first"
    assert forward(moves) == [] and len(stashes(project)) == 2 + len(before), "a repeat is harmless"
    assert back(moves) == []
    assert stashes(project) == before
    assert forward(moves) == [] and stashes(project) == ["second", "first", *before], "redo"


def test_a_stash_that_the_user_made_in_between(project: Project) -> None:
    moves = stashed(project)
    assert forward(moves) == []
    git(project.path, "echo mine > file; git stash push -qm mine")
    before = stashes(project)
    assert back(moves) == ["has moved since"]
    assert stashes(project) == before == ["On main: mine", "second", "first"]


def test_a_crash_between_the_log_of_stashes_and_their_ref(project: Project) -> None:
    moves = stashed(project)
    assert forward(moves) == []
    (project.path / ".git/refs/stash").unlink()
    assert forward(moves) == []
    assert stashes(project) == ["second", "first"]


def test_stored_moves_have_only_types_that_are_read() -> None:
    assert "CustomType" not in repr(msgspec.inspect.type_info(RepositoryMoves))
