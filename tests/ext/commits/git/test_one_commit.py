"""An apply as one commit on the checked-out branch, with real git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from handgit import fsck, git, with_settings

from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.commits.git.one_commit import OneCommit
from mudroom.ext.commits.git.user_settings import UserFiles
from mudroom.ext.commits.session import CommitRequest, apply_as_commit
from mudroom.session import LandingResult
from tiers import half
from whole_text import whole

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
STATE = "git status --porcelain --ignored; git rev-parse HEAD || true; cat file || true"
USE_GIT = "(apply without a commit, then git commit)"
ME = "[user]\n\tname = Me Myself\n\temail = me@example.org\n"

ME_MYSELF = "Me Myself <me@example.org>"


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    place.write("d/other", "other\n")
    place.write("d/gone", "gone\n")
    git(place.project, "git init -q; git add -A; git commit -qm one")
    (place.root / "gitconfig").write_text(ME)
    return place


def committed(
    place: Place, script: str, message: str = "a message", *, meanwhile: Any = lambda: None, **how: Any
) -> LandingResult:
    session = place.session()
    result = session.run([b"sh", b"-ec", with_settings(script).encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    meanwhile()
    user = UserFiles(os.fsencode(place.root), (os.fsencode(place.root / "gitconfig"),))
    with session.alone("a test"):
        return apply_as_commit(session, "f", CommitRequest(message, user), **how)


def refused(place: Place, script: str, match: str, **how: Any) -> None:
    """Nothing is applied."""
    before = git(place.project, STATE)
    with pytest.raises(UsageError, match=match):
        committed(place, script, **how)
    assert (
        git(place.project, "git status --porcelain --ignored; git rev-parse HEAD || true; cat file || true") == before
    )


def clean(project: Path) -> None:
    assert fsck(project) == ""
    assert git(project, "git status --porcelain") == ""


EDIT = "echo two >> file; rm d/gone; mkdir -p n/m; echo n > n/m/x; ln -s file link; chmod +x d/other"


def test_the_files_become_one_commit(project: Place) -> None:
    done = committed(project, EDIT, "subject  \n\n\n\nbody\n\n")
    assert done.commit is not None and done.commit_problem == ""
    assert (done.commit.branch, done.commit.files, done.commit.with_changes, done.commit.left_out) == (
        "main",
        5,
        (),
        (),
    )
    clean(project.project)
    assert git(project.project, "git rev-parse HEAD").strip() == done.commit.id
    assert git(project.project, "git log -1 --format='%an <%ae> %cn|%B'") == (
        "Me Myself <me@example.org> Me Myself|subject\n\nbody\n\n"
    )
    assert git(project.project, "git diff --name-status HEAD~ HEAD").split() == (
        ["D", "d/gone", "M", "d/other", "M", "file", "A", "link", "A", "n/m/x"]
    )
    assert git(project.project, "git reflog -1 --format=%gs") == "commit: subject\n"


def test_undo_and_redo_take_the_commit_along(project: Place) -> None:
    head = git(project.project, "git rev-parse HEAD")
    done = committed(project, EDIT)
    assert done.commit is not None
    session = project.session()
    with session.alone("a test"):
        session.changes.undo()
        assert git(project.project, "git rev-parse HEAD") == head
        clean(project.project)
        session.changes.redo()
    assert git(project.project, "git rev-parse HEAD").strip() == done.commit.id
    clean(project.project)


def test_other_changes_of_the_user_are_not_in_it(project: Place) -> None:
    project.write("staged", "s\n")
    project.write("d/other", "mine\n")
    git(project.project, "git add staged")
    project.write("untracked", "u\n")
    done = committed(project, "echo two >> file")
    assert done.commit is not None and done.commit.with_changes == ()
    assert git(project.project, "git show --name-only --format=") == "file\n"
    assert git(project.project, "git status --porcelain").splitlines() == [" M d/other", "A  staged", "?? untracked"]
    assert fsck(project.project) == ""


def test_a_file_with_changes_of_the_user_is_told(project: Place) -> None:
    project.write("file", "zero\none\n")
    done = committed(project, "echo two >> file")
    assert done.commit is not None and done.commit.with_changes == (b"file",)
    assert git(project.project, "git show HEAD:file") == "zero\none\ntwo\n"


def test_only_the_chosen_files(project: Place) -> None:
    done = committed(project, "echo two >> file; echo x > x", paths=[b"x"])
    assert done.commit is not None
    assert git(project.project, "git show --name-only --format=") == "x\n"
    clean(project.project)


def test_a_directory_that_becomes_a_file_and_the_other_way_round(project: Place) -> None:
    done = committed(project, "rm -r d; echo d > d; rm file; mkdir file; echo f > file/f")
    assert done.commit is not None
    clean(project.project)
    assert git(project.project, "git ls-files").split() == ["d", "file/f"]


def test_ignored_files_are_applied_and_not_committed(project: Place) -> None:
    project.write(".gitignore", "*.o\nbuild/\n")
    git(project.project, "git add .gitignore; git commit -qm ignore")
    done = committed(project, "echo > a.o; mkdir -p build/x; echo > build/x/y; echo > c")
    assert done.commit is not None
    assert done.commit.left_out == (b"a.o", b"build/x/y")
    assert git(project.project, "git show --name-only --format=") == "c\n"


def test_a_first_commit_and_a_detached_head(place: Place) -> None:
    place.write("file", "one\n")
    git(place.project, "git init -q")
    (place.root / "gitconfig").write_text(ME)
    first = committed(place, "echo two > new")
    assert first.commit is not None and first.commit.branch == "main"
    assert git(place.project, "git log --format=%s; git ls-files") == "a message\nnew\n"
    git(place.project, "git checkout -q --detach")
    second = committed(place, "echo three > new")
    assert second.commit is not None and second.commit.branch == ""
    assert git(place.project, "git rev-parse HEAD").strip() == second.commit.id
    assert (
        git(place.project, "git symbolic-ref -q HEAD || echo detached; git status --porcelain") == "detached\n?? file\n"
    )
    session = place.session()
    with session.alone("a test"):
        session.changes.undo()
    assert git(place.project, "git rev-parse HEAD").strip() == first.commit.id
    with session.alone("a test"):
        session.changes.undo(first.applied.name)
    assert fsck(place.project).replace("notice: HEAD points to an unborn branch (main)\n", "").count("missing") == 0


def test_conflicts_leave_no_commit(project: Place) -> None:
    done = committed(project, "echo theirs > file; echo x > x", meanwhile=lambda: project.write("file", "mine\n"))
    assert (done.commit, done.commit_problem) == (None, "there are conflicts")
    assert (project.project / "x").exists()
    assert git(project.project, "git log --format=%s").split() == ["one"]


def test_nothing_to_commit(project: Place) -> None:
    done = committed(project, "mkdir empty")
    assert done.commit is None and "in HEAD already" in done.commit_problem


def test_a_commit_of_the_user_while_files_are_applied(project: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files have landed; the user's commit is not built over."""
    real = OneCommit.make

    def late(*arguments: Any, **named: Any) -> Any:
        git(project.project, "git commit -q --allow-empty -m meanwhile")
        return real(*arguments, **named)

    monkeypatch.setattr(OneCommit, "make", late)
    done = committed(project, "echo two >> file")
    assert (done.commit, done.commit_problem) == (None, "HEAD has moved meanwhile (git commit)")
    assert (project.project / "file").read_text() == "one\ntwo\n"
    assert git(project.project, "git log --format=%s").split() == ["meanwhile", "one"]


def test_an_undo_beside_another_git_command(project: Place) -> None:
    assert committed(project, "echo two >> file").commit is not None
    lock = project.project / ".git/index.lock"
    lock.touch()
    told = "another git command is at work in the repository, so nothing was changed"
    session = project.session()
    with session.alone("a test"), pytest.raises(UsageError, match=whole(f"{told} (if not, remove {lock})")):
        session.changes.undo()
    assert (project.project / "file").read_text() == "one\ntwo\n"
    lock.unlink()
    with session.alone("a test"):
        session.changes.undo()
    clean(project.project)


# --- refusals, before anything is applied ---


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ("touch .git/index.lock", "locked the index"),
        ("touch .git/HEAD.lock", "another git command"),
        ("touch .git/refs/heads/main.lock", "another git command"),
        ("git rev-parse HEAD > .git/MERGE_HEAD", "a merge is not finished"),
        ("mkdir .git/rebase-merge", "a rebase is not finished"),
        ("touch .git/BISECT_LOG", "a bisect is not finished"),
        ("git config commit.gpgsign true; git config gpg.format ssh", "user.signingKey names no file"),
        ("git config commit.gpgsign true; git config gpg.format pgp2", "with which mudroom cannot sign"),
        ("mv .git ../away", "no git repository"),
        ("git config core.worktree ../..", f"the work tree of the repository is not the project {USE_GIT}"),
    ],
)
def test_a_repository_that_takes_no_commit(project: Place, state: str, match: str) -> None:
    git(project.project, state)
    before = (project.project / "file").read_text()
    with pytest.raises(UsageError, match=match.replace("(", r"\(").replace(")", r"\)")):
        committed(project, "echo two >> file")
    assert (project.project / "file").read_text() == before


# --- signatures ---

SSH = """\tsigningkey = {0}/key.pub
[commit]
\tgpgsign = true
[gpg]
\tformat = ssh
[gpg "ssh"]
\tallowedSignersFile = {0}/signers
"""


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_commit_is_signed_with_the_users_key(project: Place) -> None:
    git(project.root, "ssh-keygen -q -t ed25519 -N '' -f key; echo \"me@example.org $(cat key.pub)\" > signers")
    (project.root / "gitconfig").write_text(ME + SSH.format(project.root))
    assert committed(project, "echo two >> file").commit is not None
    verified = f"GIT_CONFIG_GLOBAL={project.root}/gitconfig git log -1 --format='%G? %GS %s'; git fsck --strict"
    assert git(project.project, verified) == "G me@example.org a message\n"
    clean(project.project)


@pytest.mark.skipif(shutil.which("gpgconf") is None, reason="gpg is not installed")
@pytest.mark.both_users
def test_a_commit_is_signed_with_the_users_openpgp_key(project: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="mrg", dir="/tmp") as keys:  # the agent's socket has a short path
        monkeypatch.setenv("GNUPGHOME", keys)
        make = (
            f"gpg --batch -q --passphrase '' --pinentry-mode loopback --quick-gen-key '{ME_MYSELF}' ed25519 sign never"
        )
        git(project.root, f"GNUPGHOME={keys} {make}")
        (project.root / "gitconfig").write_text(f"{ME}[commit]\n\tgpgsign = true\n")
        try:
            assert committed(project, "echo two >> file").commit is not None
            git(project.project, f"GNUPGHOME={keys} git verify-commit HEAD")
            verified = f"GNUPGHOME={keys} git log -1 --format='%G? %GS %s'; git fsck --strict"
            assert git(project.project, verified) == f"G {ME_MYSELF} a message\n"
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], check=True)
    clean(project.project)


def test_a_program_that_the_repository_names_does_not_sign(project: Place) -> None:
    """A command may have written its settings."""
    program = project.root / "own"
    program.write_text("#!/bin/sh\ncat > $0.text\necho -----BEGIN X-----\necho more\n")
    program.chmod(0o755)
    (project.root / "gitconfig").write_text(f"{ME}[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = {program}\n")
    git(project.project, f"git config gpg.program {project.root}/theirs")
    assert committed(project, "echo two >> file").commit is not None
    raw = git(project.project, "git cat-file commit HEAD")
    assert "\ngpgsig -----BEGIN X-----\n more\n\na message\n" in raw
    assert (project.root / "own.text").read_text() == raw.replace("gpgsig -----BEGIN X-----\n more\n", "")


def test_a_signature_that_fails_leaves_the_files_applied(project: Place) -> None:
    (project.root / "gitconfig").write_text(f"{ME}[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = false\n")
    landed = committed(project, "echo two >> file")
    assert (landed.commit, (project.project / "file").read_text()) == (None, "one\ntwo\n")
    assert landed.commit_problem.endswith("/false does not sign: no signature (git commit -S)")
    (project.root / "gitconfig").write_text(f"{ME}[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = absent\n")
    with pytest.raises(UsageError, match=r"commit\.gpgSign is set, and absent is not installed"):
        committed(project, "echo two >> file")


def test_without_a_name_or_a_message(project: Place) -> None:
    refused(project, "echo two >> file", "message of the commit is empty", message=" \n\t\n")
    nul = "the message of the commit holds a NUL (write it without this character)"
    refused(project, "true", whole(nul), message="a\0b")
    (project.root / "gitconfig").write_text("[user]\n\tname = Me\n")
    refused(project, "true", "user.email is not set")
    git(project.project, "git config user.email here@example.org")
    assert committed(project, "true").commit is not None
    assert git(project.project, "git log -1 --format=%ae") == "here@example.org\n"


UNCERTAIN = (
    "user.email depends on a condition that mudroom does not know "
    "(git config user.email VALUE sets it for this repository)"
)


def test_included_settings(project: Place) -> None:
    work = project.root / "work"
    work.write_text("[user]\n\temail = work@example.org\n")
    condition = f'[includeIf "gitdir:{project.project}/"]\n\tpath = work\n'
    (project.root / "gitconfig").write_text(ME + condition)
    assert committed(project, "echo two >> file").commit is not None
    assert git(project.project, "git log -1 --format=%ae") == "work@example.org\n"
    (project.root / "gitconfig").write_text(ME + condition.replace("gitdir:", "gitdir:/elsewhere"))
    assert committed(project, "echo 3 >> file").commit is not None
    assert git(project.project, "git log -1 --format=%ae") == "me@example.org\n"
    (project.root / "gitconfig").write_text(ME + condition.replace("gitdir:", "hasconfig:remote.*.url:"))
    refused(project, "echo 4 >> file", whole(UNCERTAIN))


@pytest.mark.parametrize(
    ("attributes", "settings", "content", "match"),
    half(
        [
            ("* text=auto\n", "", "a\\r\\n", "line ends"),
            ("*.txt eol=crlf\n", "", "a\\r\\n", "line ends"),
            ("", "core.autocrlf input", "a\\r\\n", "line ends"),
            ("*.txt filter=lfs diff=lfs merge=lfs -text\n", "", "a\\n", "filter"),
            ("[attr]odd filter=x\n*.txt odd\n", "", "a\\n", "odd"),
            ("*.txt working-tree-encoding=UTF-16\n", "", "a\\n", "working-tree-encoding"),
            ("*.txt ident\n", "", "\\$Id\\$\\n", "Id"),
        ]
    ),
)
def test_a_file_that_git_would_convert(
    project: Place, attributes: str, settings: str, content: str, match: str
) -> None:
    project.write(".gitattributes", attributes)
    git(project.project, f"git add -A; git commit -qm attributes; {'git config ' + settings if settings else ':'}")
    refused(project, f'printf "{content}" > a.txt; echo two >> file', match)
    with pytest.raises(UsageError, match=r"\Aa\.txt cannot be committed as it is: git would .* " + re.escape(USE_GIT)):
        committed(project, "true")
    done = committed(project, "true", paths=[b"file"])
    assert done.commit is not None, "the others can be committed"


def test_attributes_of_the_fork_count(project: Place) -> None:
    refused(project, "echo '*.bin filter=x' > .gitattributes; echo > a.bin", "filter")


def test_a_file_in_a_nested_repository(project: Place) -> None:
    git(project.project, "git init -q sub; echo s > sub/s; cd sub; git add -A; git commit -qm s")
    refused(project, "echo t > sub/s", "belongs to the repository in sub")
