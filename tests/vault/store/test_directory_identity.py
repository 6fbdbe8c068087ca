"""A vault belongs to a directory, not to a path: another directory at the same path inherits nothing unasked."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.vault.store import directory_identity
from test_vault_verb import Cli

pytestmark = [pytest.mark.both_users, if_namespaces]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.templateDir=/usr/share/git-core/templates"]


def said(cli: Cli, *words: str, code: int = 0) -> str:
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def git(at: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=at, check=True, capture_output=True)


def origin(root: Path) -> Path:
    made = root / "origin"
    made.mkdir()
    git(made, "init", "-q")
    (made / "f").write_text("one\n")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "first")
    return made


def clone(place: Place, time: int) -> None:
    """Clone at the project's path, as if it were done at that time."""
    git(place.root, "clone", "-q", str(place.root / "origin"), str(place.project))
    for path in place.project.rglob("*"):
        os.utime(path, (time, time), follow_symlinks=False)
    log = place.project / ".git/logs/HEAD"
    fields = log.read_text().split("\t")[0].split()
    log.write_text(log.read_text().replace(fields[-2], str(time)))


@pytest.fixture
def cli(place: Place) -> Cli:
    place.project.rmdir()
    origin(place.root)
    clone(place, 1_600_000_000)
    cli = Cli(place)
    said(cli, "run", "--yes", "--", "sh", "-c", "echo two > f")
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo three > f")
    return cli


def test_a_new_clone_at_the_old_path_inherits_nothing(cli: Cli) -> None:
    place = cli.place
    shutil.rmtree(place.project)
    clone(place, 1_700_000_000)
    for verb in (["undo"], ["ls"], ["diff", "x"], ["run", "--yes", "--", "true"]):
        refused = said(cli, *verb, code=125)
        assert (
            f"{place.project} is another directory than the one its forks and applies belong to, last used 2" in refused
        )
        assert "mudroom vault archive" in refused and "mudroom vault adopt" in refused
    assert (place.project / "f").read_text() == "one\n"
    archived = said(cli, "vault", "archive")
    aside = Path(archived.partition("put aside: ")[2].strip())
    assert (aside / "forks/x").is_dir()
    assert "there is nothing to undo" in said(cli, "undo", code=125)
    assert "x" not in said(cli, "ls")


def test_adopt_takes_them_for_this_directory(cli: Cli) -> None:
    shutil.rmtree(cli.place.project)
    clone(cli.place, 1_700_000_000)
    said(cli, "ls", code=125)
    assert "adopted" in said(cli, "vault", "adopt")
    assert "x" in said(cli, "ls")
    report = cli.json("vault", "adopt")
    assert report == {"schema": "mudroom.adopt/1", "project": str(cli.place.project), "forks": 1, "applies": 1}


def test_json_of_archive(cli: Cli) -> None:
    report = cli.json("vault", "archive")
    assert (report["schema"], report["project"]) == ("mudroom.archive/1", str(cli.place.project))
    assert os.path.isdir(report["archived"])


def test_what_has_no_vault_or_is_in_use_is_not_put_aside(cli: Cli) -> None:
    other = cli.place.root / "other"
    other.mkdir()
    assert f"{other} has no vault (mudroom vault ls --all" in said_at(cli, other, "vault", "adopt")
    said(cli, "mount", "x", "--kind", "copy")
    refused = said_at(cli, cli.place.project, "vault", "archive")
    assert "x is in use (mudroom discard --end x)" in refused


def said_at(cli: Cli, at: Path, *words: str) -> str:
    done = cli(*words, cwd=at)
    assert done.returncode == 125, done.stdout
    return done.stderr


def restore(project: Path, copy: Path) -> None:
    subprocess.run(["cp", "-a", str(project), str(copy)], check=True)
    shutil.rmtree(project)
    subprocess.run(["cp", "-a", str(copy), str(project)], check=True)


def move(project: Path, copy: Path) -> None:
    project.rename(copy)
    (copy / "moved").write_text("1")
    copy.rename(project)


def repository_anew(project: Path, _copy: Path) -> None:
    shutil.rmtree(project / ".git")
    git(project, "init", "-q")


def all_files_anew(project: Path, _copy: Path) -> None:
    for path in (project / "f", project / ".git/description"):
        path.write_text(path.read_text())


def expired(project: Path, copy: Path) -> None:
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "-q", "--prune=now")
    restore(project, copy)


@pytest.mark.parametrize("act", [restore, move, repository_anew, all_files_anew, expired])
def test_the_same_directory_is_known_again(cli: Cli, act: Callable[[Path, Path], None]) -> None:
    act(cli.place.project, cli.place.root / "copy")
    assert "x" in said(cli, "ls")
    assert "undone: u1" in said(cli, "undo")


def test_an_old_vault_notes_its_directory_at_the_first_use(cli: Cli) -> None:
    (record,) = cli.place.state.glob("vaults/*/directory")
    record.unlink()
    assert "x" in said(cli, "ls")
    assert record.exists()


def test_a_vault_that_holds_nothing_follows_without_a_word(place: Place) -> None:
    place.write("a")
    cli = Cli(place)
    said(cli, "run", "--yes", "--", "true")
    shutil.rmtree(place.project)
    place.project.mkdir()
    place.write("b")
    said(cli, "ls")


def test_a_record_is_written_anew_only_when_it_would_differ(place: Place) -> None:
    """A project without files has no marks."""
    cli = Cli(place)
    said(cli, "run", "--yes", "--", "true")
    (record,) = place.state.glob("vaults/*/directory")
    before = record.stat()
    said(cli, "run", "--yes", "--", "true")
    assert (record.stat().st_ino, record.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    place.write("a")
    said(cli, "ls")
    assert record.read_bytes().endswith(b" a\n")


def test_a_damaged_record_is_no_absent_one(cli: Cli) -> None:
    (record,) = cli.place.state.glob("vaults/*/directory")
    record.write_text("")
    assert "another directory" in said(cli, "ls", code=125)


@pytest.mark.parametrize("birth", [0, 5])
def test_an_inode_that_is_used_again(place: Place, monkeypatch: pytest.MonkeyPatch, birth: int) -> None:
    """ext4 gives a new directory the number of the removed one."""
    place.write("a")
    place.sh("echo 1 > b")
    shutil.rmtree(place.project)
    place.project.mkdir()
    place.write("c")
    (record,) = place.state.glob("vaults/*/directory")
    lines = record.read_bytes().split(b"\n")
    record.write_bytes(b"\n".join([b"%d %d" % (place.project.stat().st_ino, birth and 4), *lines[1:]]))
    monkeypatch.setattr(directory_identity, "birth_time", lambda _path: birth)
    if birth:
        with pytest.raises(UsageError, match="another directory"):
            place.session()
    else:  # unknown: a directory whose only file was written anew is not told from it
        place.session()


def test_the_birth_time_of_this_file_system(tmp_path: Path) -> None:
    stated = subprocess.run(["stat", "-c", "%W", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert disk.birth_time(os.fsencode(tmp_path)) // 10**9 == int(stated)
    assert disk.birth_time(os.fsencode(tmp_path / "absent")) == 0


def test_files_that_are_removed_meanwhile_are_no_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("a")
    place.write("b/c")
    real = os.scandir

    @contextmanager
    def scanned(path: bytes) -> Iterator[list[os.DirEntry[bytes]]]:
        with real(path) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_file():
                os.unlink(entry.path)
        yield entries

    monkeypatch.setattr(os, "scandir", scanned)
    place.session().close()


def test_a_read_that_fails_names_the_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.session().close()
    (noted,) = place.state.glob("vaults/*/directory")

    def failing(path: bytes) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr("mudroom.vault.store.directory_identity.safe_open.read", failing)
    with pytest.raises(OSError, match="Input/output error") as raised:
        place.session()
    assert raised.value.filename == os.fsencode(noted)
