"""Secrets and git agree: what git has is shown, what stays masked is never dirty, committed or stashed; real git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place, full_listing
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.session.session import Session
from mudroom.stage.layers import git_layer
from mudroom.stage.stamp import is_settled

pytestmark = [pytest.mark.both_users, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main -c protocol.file.allow=always"
VIEWS = pytest.mark.parametrize("view", ["overlay", "copy"])
KEPT = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""The id of the empty blob."""


def with_settings(script: str) -> str:
    return re.sub(r"(?<![-.\w/])git ", GIT + " ", script)


def git(directory: Path, script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", with_settings(script)], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


def run(session: Session, script: str, fork: str | None = None) -> Result:
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork=fork)
    assert result.exit_code == 0, result.stderr
    return result


def settings(view: str, *masked: bytes, shown: tuple[bytes, ...] = ()) -> Settings:
    return Settings(view=view, secrets_mask=masked, secrets_show=shown)  # type: ignore[arg-type]


@pytest.fixture
def project(place: Place) -> Place:
    place.write("a", "a\n")
    place.write("server.key", "K\n")
    git(place.project, "git init -q; git add .; git commit -qm 1")
    return place


def locked(place: Place) -> None:
    """A tracked secret that stays masked, because git has other content: like git-crypt or LFS."""
    place.write("locked.key", "encrypted\n")
    git(place.project, "git add .; git commit -qm 2")
    place.write("locked.key", "hunter2\n")


# --- what git has is shown ---


@VIEWS
def test_a_commit_keeps_a_tracked_secret(project: Place, view: str) -> None:
    session = project.session(settings(view))
    result = run(
        session, "git status --porcelain; cat server.key; echo x >> a; git commit -qam fix; git show --stat", "f"
    )
    assert result.stdout.startswith(b"K\n")
    assert b"server.key" not in result.stdout
    assert result.notes == (
        "1 file with the name of a secret is in git already, so it is shown: server.key "
        "(secrets.mask in the policy hides it)",
    )
    session.changes.apply(result.fork)
    assert (project.project / "server.key").read_text() == "K\n"
    assert (project.project / "a").read_text() == "a\nx\n"


def test_changes_to_a_shown_file_are_applied(project: Place) -> None:
    session = project.session()
    result = run(session, "echo more >> server.key")
    assert [change.path for change in result.changeset.changes] == [b"server.key"]
    assert result.changeset.remarks == ()
    session.changes.apply(result.fork)
    assert (project.project / "server.key").read_text() == "K\nmore\n"
    after = project.session()
    assert run(after, "cat server.key").stdout == b""  # git does not have this content
    git(project.project, "git add server.key")
    assert run(after, "cat server.key").stdout == b"K\nmore\n"


def test_content_decides_and_nothing_else(project: Place) -> None:
    path = project.project / "server.key"
    info = path.stat()
    path.write_text("S\n")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    git(project.project, "git update-index --assume-unchanged server.key")
    session = project.session()
    result = run(session, "cat server.key; git status --porcelain")
    assert result.stdout == b""
    path.write_text("K\n")
    assert run(session, "cat server.key").stdout == b"K\n"


def test_line_ends_that_git_converts(project: Place) -> None:
    (project.project / "server.key").write_bytes(b"K\r\n")
    assert run(project.session(), "cat server.key").stdout == b"K\r\n"


def test_a_large_file_stays_masked(project: Place) -> None:
    project.write("large.key", b"x" * ((16 << 20) + 1))
    git(project.project, "git add .; git commit -qm large")
    result = run(project.session(), "cat large.key; git status --porcelain")
    assert result.stdout == b""
    assert any("1 secret is shown empty: large.key" in note for note in result.notes)


@VIEWS
@pytest.mark.parametrize("masked", [b"server.key", b"*.key"])
def test_the_policy_masks_a_tracked_file(project: Place, view: str, masked: bytes) -> None:
    session = project.session(settings(view, masked))
    result = run(session, "cat server.key; git status --porcelain; echo x >> a; git commit -qam fix; git stash; "
                          "git show HEAD:server.key >&2; git status --porcelain", "f")  # fmt: skip
    assert result.stdout in (b"", b"No local changes to save\n")
    assert result.stderr == b"K\n"
    assert any("1 secret is shown empty: server.key" in note for note in result.notes)
    assert b"server.key" not in {change.path for change in result.changeset.changes}
    assert (project.project / "server.key").read_text() == "K\n"


def test_sha256(place: Place) -> None:
    place.write("server.key", "K\n")
    place.write("locked.key", "encrypted\n")
    git(place.project, "git init -q --object-format=sha256; git add .; git commit -qm 1")
    place.write("locked.key", "hunter2\n")
    result = run(
        place.session(), "git status --porcelain; cat server.key locked.key; git commit -q --allow-empty -am 2"
    )
    assert result.stdout == b"K\n"


# --- what stays masked is never dirty ---

DAY = """
test -z "$(git status --porcelain)"
test ! -s locked.key; test ! -s .env; test ! -s new/deploy.pem
git stash -q; git stash -qu; test -z "$(git stash list)"
echo x >> a; echo n > n; git add -A; git commit -qm fix
git ls-tree -r HEAD
test -z "$(git status --porcelain)"
echo y >> a; git stash -qu; git stash pop -q; git commit -qam again
git checkout -q .; git reset -q --hard; git switch -qc other HEAD~2; git switch -q -
git show HEAD:locked.key
test -z "$(git status --porcelain)"
"""


@VIEWS
def test_a_day_with_masked_files(project: Place, view: str) -> None:
    locked(project)
    project.write(".env", "TOKEN=hunter2\n")
    project.write("new/deploy.pem", "hunter2\n")
    before = full_listing(project.project)
    session = project.session(settings(view))
    result = run(session, DAY, "f")
    assert KEPT not in result.stdout.decode()
    assert b".env" not in result.stdout
    assert b"deploy.pem" not in result.stdout
    assert result.stdout.endswith(b"encrypted\n")
    assert b"hunter2" not in result.stdout
    again = run(session, "git status --porcelain; git add -A; git commit -q --allow-empty -am later", "f")
    assert again.stdout == b""
    session.changes.apply("f")
    after = full_listing(project.project)
    assert {name: row[3] for name, row in after.items() if ".git" in name} == {
        name: row[3] for name, row in before.items() if ".git" in name
    }
    assert (project.project / "locked.key").read_text() == "hunter2\n"


@VIEWS
def test_looking_changes_nothing(project: Place, view: str) -> None:
    locked(project)
    project.write(".env", "T\n")
    result = run(
        project.session(settings(view)), "git status --porcelain; touch .git/info/exclude; git diff; git log -1"
    )
    paths = {change.path for change in result.changeset.changes}
    assert b".git/info/exclude" not in paths
    assert b"locked.key" not in paths


@VIEWS
def test_own_lines_of_the_exclude_file(project: Place, view: str) -> None:
    exclude = project.write(".git/info/exclude", "*.mine")
    project.write(".env", "T\n")
    project.write("x.mine", "T\n")
    session = project.session(settings(view))
    assert run(session, "git status --porcelain", "f").stdout == b""
    result = run(session, "echo '*.too' >> .git/info/exclude; echo > y.too; git status --porcelain", "f")
    assert result.stdout == b""
    assert b".git/info/exclude" in {change.path for change in result.changeset.changes}
    session.changes.apply("f")
    assert exclude.read_text() == "*.mine"


def test_a_repository_without_an_info_directory(project: Place) -> None:
    shutil.rmtree(project.project / ".git/info")
    project.write(".env", "T\n")
    result = run(
        project.session(), "git status --porcelain; git add -A; git commit -q --allow-empty -m x; rm -r .git/info"
    )
    assert result.stdout == b""
    assert not (project.project / ".git/info").exists()
    assert not any(change.path.startswith(b".git/info") for change in result.changeset.changes)


ODD = ["a b.key", " .key", "x .key", "[a].key", "*.key", "?.key", "back\\slash.key", "!n.key", "#n.key", "ü.key",
       "line\nend.key", "cr\r.key", "tab\t.key", "dir with [x]/~ .pem"]  # fmt: skip


@VIEWS
def test_a_copy_of_a_masked_file_never_empties_it(project: Place, view: str) -> None:
    """The fork touches a masked file; the user then commits it, so that it is masked no longer."""
    project.write("new.key", "N\n")
    session = project.session(settings(view))
    result = run(session, "touch -d 2001-01-01 new.key; chmod 600 new.key", "f")
    assert [remark.path for remark in result.changeset.remarks] == [b"new.key"]
    git(project.project, "git add new.key; git commit -qm new")
    result = run(session, "echo x >> a", "f")
    assert [change.path for change in result.changeset.changes if b".git" not in change.path] == [b"a"]
    session.changes.apply("f")
    assert (project.project / "new.key").read_text() == "N\n"


def test_a_secret_is_not_copied_into_a_snapshot(project: Place) -> None:
    locked(project)
    project.session().forks.new("f", snapshot=True)
    assert not [path for path in project.state.rglob("locked.key") if path.read_bytes()]


def test_names_that_need_escapes(project: Place) -> None:
    for name in ODD:
        project.write(name, "T\n")
    project.write("an.keyx", "seen\n")
    result = run(project.session(), "git status --porcelain -z; git add -A; git ls-files -z")
    assert result.stdout == b"?? an.keyx\0a\0an.keyx\0server.key\0"


def test_the_project_changes_between_commands(project: Place) -> None:
    locked(project)
    session = project.session()
    assert run(session, "git status --porcelain", "f").stdout == b""
    project.write("later.key", "later\n")
    project.write("b", "b\n")
    git(project.project, "git add b; git commit -qm 3")
    result = run(session, "git status --porcelain; git ls-files", "g")
    assert result.stdout.split() == [b"a", b"b", b"locked.key", b"server.key"]


def test_a_frozen_fork_does_not_see_a_newer_index(project: Place) -> None:
    locked(project)
    session = project.session()
    session.forks.new("f", snapshot=True)
    project.write("b", "b\n")
    git(project.project, "git add b; git commit -qm 3")
    result = run(
        session, "git status --porcelain; git ls-files; git commit -q --allow-empty -am x; git ls-tree -r HEAD", "f"
    )
    assert b"\tb" not in result.stdout
    assert result.stdout.startswith(b"a\nlocked.key\nserver.key\n100644")
    assert KEPT.encode() not in result.stdout


@VIEWS
def test_conflict_stages_stay(project: Place, view: str) -> None:
    locked(project)
    git(project.project, "git stash -q; git switch -qc b; echo b > a; git commit -qam b; git switch -q main; "
                         "echo m > a; git commit -qam m; git merge b || true; git stash list")  # fmt: skip
    project.write("locked.key", "hunter2\n")
    before = git(project.project, "git ls-files -u")
    assert before
    result = run(project.session(settings(view)), "git status --porcelain; git ls-files -u")
    assert result.stdout.decode() == "UU a\n" + before


# --- where repositories lie ---


@VIEWS
def test_nested_repositories_and_submodules(project: Place, view: str) -> None:
    other = project.root / "other"
    other.mkdir()
    (other / "tracked.key").write_text("T\n")
    (other / "locked.key").write_text("encrypted\n")
    git(other, "git init -q; git add .; git commit -qm 1")
    git(project.project, f"git submodule add -q {other} sub; git commit -qm sub; git clone -q {other} nested")
    for name in ("sub", "nested"):
        project.write(name + "/locked.key", "hunter2\n")
        project.write(name + "/.env", "hunter2\n")
    git(project.project, "git worktree add -q wt 2>/dev/null")
    project.write("wt/server.key", "hunter2\n")
    project.write("wt/.env", "hunter2\n")
    script = "cat */tracked.key */locked.key */.env; for d in sub nested wt; do (cd $d; git status --porcelain; " \
             "git stash -qu; git add -A; git commit -q --allow-empty -am x; git ls-tree -r HEAD); done"  # fmt: skip
    result = run(project.session(settings(view)), script)
    assert result.stdout.startswith(b"T\nT\n100644 ")
    assert KEPT.encode() not in result.stdout
    assert b".env" not in result.stdout
    assert all("changed in the fork" not in note for note in result.notes)


def test_a_git_directory_elsewhere_is_left_alone(place: Place) -> None:
    elsewhere = place.root / "elsewhere"
    place.write("server.key", "K\n")
    git(place.project, f"git init -q --separate-git-dir {elsewhere}; git add .; git commit -qm 1")
    assert run(place.session(), "cat server.key").stdout == b""
    os.unlink(place.project / ".git")
    os.symlink(elsewhere, place.project / ".git")
    assert run(place.session(), "cat server.key").stdout == b""


# --- indexes that cannot be written anew ---


@VIEWS
@pytest.mark.parametrize("version", [2, 3, 4])
def test_versions_of_the_index(project: Place, view: str, version: int) -> None:
    locked(project)
    if version == 3:
        git(project.project, "echo n > n; git add -N n")
    else:
        git(project.project, f"git update-index --index-version {version}")
    data = (project.project / ".git/index").read_bytes()
    assert data[4:8] == version.to_bytes(4, "big")
    result = run(
        project.session(settings(view)), "cat server.key locked.key; git status --porcelain | grep -v ' A n' || true"
    )
    assert result.stdout == b"K\n"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(b"", "ends in the middle"), (b"DIRC", "ends in the middle"), (b"garbage" * 20, "has an unknown format")],
)
def test_a_damaged_index(project: Place, damage: bytes, reason: str) -> None:
    project.write(".git/index", damage)
    result = run(project.session(), "cat server.key")
    assert result.stdout == b""
    assert any(f".git/index cannot be read (the index {reason})" in note for note in result.notes)
    assert any("1 secret is shown empty: server.key" in note for note in result.notes)


def test_split_and_sparse_indexes(project: Place) -> None:
    locked(project)
    git(project.project, "git update-index --split-index")
    result = run(project.session(), "cat locked.key")
    assert result.stdout == b""
    git(project.project, "git update-index --no-split-index; mkdir d; echo d > d/d; git add d; git commit -qm d; "
                         "git sparse-checkout init --cone --sparse-index")  # fmt: skip
    assert b"sdir" in (project.project / ".git/index").read_bytes()
    project.write("locked.key", "hunter2\n")
    result = run(project.session(), "cat server.key locked.key")
    assert result.stdout == b"K\n"
    assert any(".git/index is split or sparse" in note and "locked.key" in note for note in result.notes)


# --- cost ---


def test_the_second_command_hashes_and_parses_nothing(project: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    locked(project)
    project.write(".env", "T\n")
    used = [project.project / name for name in (".git/index", "locked.key", ".env", "server.key")]
    while not all(is_settled(path.lstat().st_ctime_ns, time.time_ns()) for path in used):
        give_way()
    first = project.session().forks.secrets.look()
    monkeypatch.setattr(git_layer, "plan_git", None)
    assert project.session().forks.secrets.look() == first
    monkeypatch.undo()
    project.write("locked.key", "encrypted\n")
    mask, _notes = project.session().forks.secrets.look()
    assert mask.paths == {b".env"}
