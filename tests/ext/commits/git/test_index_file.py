"""The user's index moves from one commit to another as ``git read-tree -m`` moves it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from handgit import git
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.git.blob import blob_id
from mudroom.core.git.index import parse_index
from mudroom.errors import UsageError
from mudroom.ext.commits.git.index_file import (
    IndexMove,
    index_obstacle,
    move_entries,
    move_index,
    read_index,
    tree_difference,
)
from mudroom.ext.commits.git.repository import Repository
from mudroom.vault.git.place import find_repository
from tiers import examples

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
CHANGE = (
    "rm -r d; mkdir d; echo 1 > d/e; ln -s file link; echo x > run; chmod +x run; echo 2 > file; rm gone;"
    "echo d > gone.d"
)


@pytest.fixture(params=["sha1", "sha256"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    git(
        path,
        f"git init -q --object-format={request.param}; mkdir -p d/deep; echo a > d/deep/a; echo 1 > file;echo g > gone",
    )
    git(
        path,
        f"git add -A; git commit -qm one; {CHANGE}; git add -A; git commit -qm two; git tag two;"
        "git reset -q --hard HEAD^",
    )
    return path


def moved(project: Path, before: str, after: str) -> None:
    names = [git(project, f"git rev-parse {name}").strip().encode() if name else b"" for name in (before, after)]
    with Repository(find_repository(os.fsencode(project), b".git")) as live:
        at = live.place.git + b"/index"
        with move_index(live, at, IndexMove(names[0], names[1], os.fsencode(os.path.realpath(project)))) as update:
            update.commit()


def staged(project: Path) -> str:
    return git(project, "git ls-files -s -t")


def test_as_git_moves_it(project: Path) -> None:
    git(project, "git read-tree -m HEAD two")
    expected = staged(project)
    git(project, "git reset -q")
    before = staged(project)
    moved(project, "HEAD", "two")
    assert staged(project) == expected
    moved(project, "two", "HEAD")
    assert staged(project) == before
    assert git(project, "git status --porcelain; git fsck --strict") == ""


def test_before_the_first_commit(project: Path) -> None:
    git(project, "rm .git/index")
    moved(project, "", "two")
    assert staged(project).count("\n") == len(git(project, "git ls-tree -r two").splitlines())
    moved(project, "two", "")
    assert staged(project) == ""


def test_staged_entries_and_flags_stay(project: Path) -> None:
    git(
        project,
        "echo mine > file; git add file; echo other > other; git add other; git update-index --skip-worktree gone",
    )
    moved(project, "HEAD", "two")
    lines = {line.split("\t")[1]: line.split()[:2] for line in staged(project).splitlines()}
    assert lines["file"][1] == "100644" and "other" in lines and "gone" not in lines
    assert git(project, "git show :file").strip() == "mine"


def test_stat_data_only_where_the_content_is_that_of_the_entry(project: Path) -> None:
    (project / "file").write_text("2\n")
    (project / "gone.d").write_text("another\n")
    moved(project, "HEAD", "two")
    entries = {
        entry.path: entry for entry in read_index(os.fsencode(project) + b"/.git/index", _length(project)).entries
    }
    assert any(entries[b"file"].stat[:8]) and not any(entries[b"gone.d"].stat[:8])
    assert not any(entries[b"link"].stat[:8]) and not any(entries[b"run"].stat[:8])
    assert "gone.d" in git(project, "git diff-files --name-only").split()
    assert "file" not in git(project, "git diff-files --name-only").split()


def _length(project: Path) -> int:
    return len(git(project, "git rev-parse HEAD").strip()) // 2


def test_an_update_that_is_not_committed_changes_nothing(project: Path) -> None:
    index = project / ".git/index"
    before = index.read_bytes()
    with Repository(find_repository(os.fsencode(project), b".git")) as live:
        names = git(project, "git rev-parse HEAD two").encode().split()
        with move_index(live, os.fsencode(index), IndexMove(names[0], names[1], os.fsencode(project))):
            assert (project / ".git/index.lock").exists()
            with pytest.raises(UsageError, match="another git command is at work"):
                move_index(live, os.fsencode(index), IndexMove(names[0], names[1], os.fsencode(project)))
        with pytest.raises(UsageError, match="is missing in the repository"):
            move_index(live, os.fsencode(index), IndexMove(names[0], b"1" * len(names[0]), os.fsencode(project)))
    assert index.read_bytes() == before and list(project.rglob("*.lock")) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("true", ""),
        ("rm .git/index", ""),
        ("touch .git/index.lock", "another git command has locked the index"),
        ("echo x > .git/index", "the index of the repository is damaged"),
        ("truncate -s 80 .git/index", "the index of the repository is damaged"),
        ("git update-index --split-index", "the index is split or sparse"),
        (
            "git checkout -qb b; echo b > file; git commit -qam b; git merge -q two || true",
            "the index has files in conflict",
        ),
    ],
)
def test_obstacles(project: Path, script: str, reason: str) -> None:
    git(project, script)
    found = index_obstacle(os.fsencode(project) + b"/.git/index", _length(project))
    assert found.startswith(reason) and bool(found) == bool(reason)


def test_tree_difference(project: Path) -> None:
    with Repository(find_repository(os.fsencode(project), b".git")) as live:
        one, two = git(project, "git rev-parse HEAD two").encode().split()
        old, new = tree_difference(live, one, two)
    assert sorted(old) == [b"d/deep/a", b"file", b"gone"]
    assert sorted(new) == [b"d/e", b"file", b"gone.d", b"link", b"run"]
    assert (new[b"link"].mode, new[b"run"].mode) == (0o120000, 0o100755)


def test_blob_id(project: Path) -> None:
    assert blob_id(b"1\n", _length(project)).hex() == git(project, "git hash-object file").strip()


def test_an_edit_in_the_second_of_the_index_stays_seen(project: Path) -> None:
    """racy-git.txt: the file has the size of its entry, and no later time than the index."""
    for path in ("d/deep/a", ".git/index"):
        os.utime(project / path, (1_700_000_000, 1_700_000_000))
    git(project, "git update-index --refresh")
    (project / "d/deep/a").write_text("b\n")
    for path in ("d/deep/a", ".git/index"):
        os.utime(project / path, (1_700_000_000, 1_700_000_000))
    git(project, "git config core.trustctime false; git config core.checkStat minimal")
    assert git(project, "git diff --name-only") == "d/deep/a\n"
    git(project, "git update-ref refs/heads/empty $(git commit-tree -p HEAD -m empty HEAD^{tree})")
    moved(project, "HEAD", "empty")
    assert git(project, "git diff --name-only") == "d/deep/a\n"


def plain_git(repository: Path, *words: str, **how: bytes) -> bytes:
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, check=True, **how)  # type: ignore[call-overload]
    return bytes(done.stdout)


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_a_move_is_that_of_read_tree(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """``git read-tree -m OLD NEW`` for every combination of a file in the index, the old and the new tree that it does
    not refuse."""
    repository = tmp_path_factory.mktemp("moved")
    plain_git(repository, "init", "-q")
    blobs = [plain_git(repository, "hash-object", "-w", "--stdin", input=text).strip() for text in (b"1", b"2", b"3")]
    choices = st.sampled_from([None, *blobs])
    rows: dict[str, tuple[bytes | None, bytes | None, bytes | None]] = {}
    for number in range(6):
        old, new, staged = (data.draw(choices) for _side in range(3))
        rows[f"f{number}"] = (old, new, staged if old == new or staged == new else old)
    trees, maps = [], []
    for side in range(3):
        plain_git(repository, "read-tree", "--empty")
        for name, row in rows.items():
            blob = row[side]
            if blob is not None:
                plain_git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob.decode()},{name}")
        maps.append({entry.path: entry.item for entry in parse_index((repository / ".git/index").read_bytes()).entries})
        trees.append(plain_git(repository, "write-tree").strip().decode())
    before = parse_index((repository / ".git/index").read_bytes()).entries
    plain_git(repository, "read-tree", "-m", trees[0], trees[1])
    expected = {entry.path: entry.item for entry in parse_index((repository / ".git/index").read_bytes()).entries}
    assert {entry.path: entry.item for entry in move_entries(before, maps[0], maps[1])} == expected
