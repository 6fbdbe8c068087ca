"""Messages of errors about commits, each brought about by what a user would type or write. One process."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

import mudroom
from conftest import Place
from mudroom.cli.main import run
from mudroom.errors import UsageError
from mudroom.ext.commits.git.index_file import read_index

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def environ_of(place: Place) -> dict[bytes, bytes]:
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in variables.items()}


REPOSITORY = {
    ".git/HEAD.lock": "another git command is at work in the repository (if not, remove ",
    ".git/MERGE_HEAD": "a merge is not finished in the repository (git status shows it)",
    ".git/config": "commit.gpgSign is set, and user.signingKey names no file (git config --global user.signingKey ",
    ".git/index": "no commit can be made: ",
    ".git/HEAD": "HEAD of the repository leads to no branch (git status shows it)",
}
"""A file of the repository, and the reason why an apply makes no commit. The fork stays as it is."""
_CONTENT = {
    ".git/config": "[user]\n\tname = a\n\temail = a@b\n[commit]\n\tgpgsign = true\n[gpg]\n\tformat = ssh\n",
    ".git/HEAD": "ref: refs/x\n",
    ".git/MERGE_HEAD": "1" * 40 + "\n",
}


def test_a_repository_in_which_no_commit_can_be_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place.write("a", "1\n")
    for words in (("init", "-q"), ("add", "a"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=place.project, check=True)
    variables = {"HOME": str(place.home), "MUDROOM_STATE": str(place.state), "PATH": "/usr/bin:/bin"}
    with mudroom.open(place.project, environ=variables) as room:
        room.fork("f").write("a", "2\n")
    monkeypatch.chdir(place.project)
    problems = []
    for name, told in REPOSITORY.items():
        path = place.project / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before if name == ".git/config" and before else b"") + _CONTENT.get(name, "").encode())
        code = run(["apply", "f", "--yes", "--commit", "-m", "two"], environ_of(place))
        said = capfd.readouterr().err
        if code != 125 or told not in said:
            problems.append(f"{name}: {code} {said}")
        path.unlink() if before is None else path.write_bytes(before)
    assert not problems, "\n".join(problems)
    assert (place.project / "a").read_text() == "1\n"
    assert run(["apply", "f", "--yes"], environ_of(place)) == 0
    assert run(["redo", "u1"], environ_of(place)) == 125
    assert "u1 cannot be redone (it has not been undone)" in capfd.readouterr().err


def test_a_project_without_a_repository(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.project)
    assert run(["fork", "new", "f"], environ_of(place)) == 0
    for written, told in (
        ("", "there is no git repository at .git ("),
        ("no link\n", ".git is not a git repository (its file .git begins with gitdir: and names one)"),
    ):
        if written:
            place.write(".git", written)
        capfd.readouterr()
        for options in ([], ["--repository", "."]):
            assert run(["diff", "f", "--commits", *options], environ_of(place)) == 125
            assert told in capfd.readouterr().err


def test_a_damaged_index(place: Place) -> None:
    index = place.write("index", "no index")
    with pytest.raises(UsageError, match=r"^the index of the repository is damaged: "):
        read_index(os.fsencode(index), 20)
