"""What a project's file keeps when a command rewrites it: the second table of docs/evidence/METADATA.md."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Place
from metadata_table import FUNCTIONS, REPLACED, STAYS, Replaced
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import from_stat
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.stage.originals.collection import ProjectForm
from mudroom.vault.apply import form
from test_filesystems import make_filesystem, mounted
from tiers import pairs

__all__ = ["mounted"]  # a fixture

SHELL = f"PYTHON={sys.executable}\n{FUNCTIONS}"
WAYS = {"written": "echo more >> f", "replaced": "cp f t; echo more >> t; rm -f f; mv t f"}
VIEWS = {"overlay": Settings(view="overlay"), "copy": Settings(view="copy"), "level 0": Settings(view="copy", level=0)}
GRANTS = f"system.posix_acl_access [(2, 6, {os.getuid()}), (4, 4, 4294967295)]\nend"

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def sh(at: Path, script: str) -> str:
    done = subprocess.run(["sh", "-c", SHELL + script], cwd=at, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout.strip()


def rows() -> dict[str, Replaced]:
    """Return the rows that this user can make, by the directory in the project."""
    made = [row for row in REPLACED if row.before and (not row.root or os.geteuid() == 0)]
    return {f"r{number}": row for number, row in enumerate(made)}


def seen(project: Path) -> dict[str, str]:
    return {row.what: sh(project / at, row.look) for at, row in rows().items() if row.look}


def said(changeset: Changeset) -> dict[str, str]:
    """Return the words about each path's change, of its flags and its remarks."""
    words = {os.fsdecode(change.path): " ".join({*change.flags} - {"content"}) for change in changeset.changes}
    for remark in changeset.remarks:
        path = os.fsdecode(remark.path)
        words[path] = f"{words.get(path, '')} {remark.text}"
    return words


def furnish(place: Place) -> Iterator[Place]:
    for at, row in rows().items():
        place.write(f"{at}/f", f"{at}\n")
        sh(place.project / at, row.before)
    yield place
    if os.geteuid() == 0:
        subprocess.run(["chattr", "-R", "-i", "-a", place.project], check=False, capture_output=True)


@pytest.fixture
def files(place: Place) -> Iterator[Place]:
    yield from furnish(place)


@pytest.mark.parametrize(("view", "way"), pairs(list(VIEWS), list(WAYS)))
def test_each_row(files: Place, view: str, way: str) -> None:
    check_each_row(files, view, way)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.slow
@pytest.mark.parametrize("view", ["overlay", "copy"])
@pytest.mark.parametrize(("kind", "size"), [("xfs", "400M"), ("btrfs", "200M")])
def test_each_row_on_another_file_system(
    tmp_path: Path, mounted: Path, client: Client, kind: str, size: str, view: str
) -> None:
    make_filesystem(kind, size, tmp_path / "image", mounted)
    with contextmanager(furnish)(Place(mounted, client)) as files:
        check_each_row(files, view, "replaced")
        files.close()


def check_each_row(files: Place, view: str, way: str) -> None:
    before = seen(files.project)
    session = files.session(VIEWS[view])
    script = "\n".join(f"(cd {at}; {WAYS[way]})" for at in rows())
    words = said(session.run([b"sh", b"-c", script.encode()], fork="f").changeset)
    expected = dict(before)
    for at, row in rows().items():
        told = words.get(f"{at}/f")
        if told is None:
            assert row.kept == STAYS or view == "overlay", row.what  # the kernel does not let the command write it
            continue
        assert row.shown in told or (row.shown == "xattr" and way == "written"), (row.what, told)
        assert row.shown or told in ("", "mode"), (row.what, told)
        if row.look and row.after is not None:
            expected[row.what] = row.after
    conflicts = {os.fsdecode(conflict.path) for conflict in session.changes.apply("f").conflicts}
    assert conflicts == {f"{at}/f" for at, row in rows().items() if row.kept == STAYS and f"{at}/f" in words}
    assert seen(files.project) == expected
    for _turn in range(2):
        session.changes.undo()
        assert seen(files.project) == before
        session.changes.redo()
        assert seen(files.project) == expected


def run(place: Place, view: str, script: str) -> tuple[Session, dict[str, str]]:
    session = place.session(VIEWS[view])
    result = session.run([b"sh", b"-c", (SHELL + script).encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    return session, said(result.changeset)


@pytest.mark.parametrize("view", VIEWS)
def test_a_renamed_file_keeps_its_list(place: Place, view: str) -> None:
    for name in ("d/f", "g"):
        sh(place.write(name, "same\n" * 9).parent, f"acl {name[-1]} access")
    session, words = run(place, view, "mv d e; mv g h")
    assert not session.changes.apply("f").conflicts
    assert sh(place.project, "grants e/f h") == GRANTS.replace("end", GRANTS)
    assert set(words.values()) == {""}


@pytest.mark.parametrize("view", VIEWS)
def test_a_new_entry_gets_the_default_list_of_its_directory(place: Place, view: str) -> None:
    place.write("team/f", "f\n")
    sh(place.project, "acl team default 1:7:-1 2:6:65534 4:5:-1 16:7:-1 32:5:-1")
    session, words = run(
        place, view, "cd team; echo n > n; mkdir -p new/deep; echo y > new/deep/y; ln -s n l; rm f; mkdir f"
    )
    assert not any("access control" in told for told in words.values()), words
    assert not session.changes.apply("f").conflicts
    for _turn in range(2):
        names = [f"system.posix_acl_{kind} [(2, 6, 65534), (4, 5, 4294967295)]" for kind in ("access", "default")]
        assert sh(place.project / "team", "grants n new/deep/y") == "\n".join([names[0], names[0], "end"])
        assert sh(place.project / "team", "grants new new/deep f") == "\n".join([*names * 3, "end"])
        session.changes.undo()
        session.changes.redo()


@pytest.mark.parametrize("view", VIEWS)
def test_a_list_of_the_fork_opens_nothing(place: Place, view: str) -> None:
    """A list shows its mask where a mode has the group's bits."""
    place.write("f", "f\n", 0o600)
    session, words = run(
        place, view, "mkdir -p d/e; echo x > d/e/x; acl d/e/x access; chmod 660 d/e/x; acl f access; chmod 660 f"
    )
    for path in ("d/e/x", "f"):
        assert "reduced-mode" in words[path]
        assert "has an access control list in the fork, which is not applied" in words[path]
    session.changes.apply("f")
    for name, mode in (("d/e/x", 0o640), ("f", 0o640)):
        assert (place.project / name).stat().st_mode & 0o777 == mode
        assert sh(place.project, f"grants {name}") == "end"


def test_an_undo_keeps_the_list_that_the_user_has_set_since(place: Place) -> None:
    place.write("f", "one\ntwo\nthree\nfour\nfive\n")
    place.write("g", "g\n")
    session, _words = run(place, "overlay", "sed -i s/one/ONE/ f; echo more >> g")
    session.changes.apply("f")
    sh(place.project, "acl f access; sed -i s/five/FIVE/ f; acl f access; setx f user.k; acl g access; chmod 644 g")
    session.changes.undo()
    assert (place.project / "f").read_text() == "one\ntwo\nthree\nfour\nFIVE\n"
    assert (place.project / "g").read_text() == "g\n"
    assert sh(place.project, "grants f g") == GRANTS.replace("end", GRANTS)
    assert os.getxattr(place.project / "f", "user.k") == b"v"


def test_a_backup_has_the_list_of_the_file(place: Place) -> None:
    for name in ("f", "g"):
        sh(place.write(name, "one\n").parent, f"acl {name} access")
    session, _words = run(place, "copy", "echo more >> f; rm g")
    assert not session.changes.apply("f", backups=True).conflicts
    assert sh(place.project, "grants f f.bak g.bak") == GRANTS.replace("end", GRANTS.replace("end", GRANTS))


def test_the_owner_and_group_that_a_new_file_cannot_have_are_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.write("f", "f\n")
    info = os.lstat(path)
    base = from_stat(info)  # type: ignore[arg-type]
    monkeypatch.setattr(disk, "user", lambda: info.st_uid + 1)
    monkeypatch.setattr(disk, "group", lambda: info.st_gid)
    with ProjectForm(bytes(place.project)) as project:
        assert project.lost(b"f", base, base) == [
            f"belongs to the user {info.st_uid} in the project; the new file will be yours"
        ]
        others = base._replace(gid=54321)
        assert "has the group 54321 in the project, which is not yours" in project.lost(b"f", others, base)[1]
        assert project.lost(b"missing", base, base) == project.lost(b"f", base, base)
    with ProjectForm(b"") as nowhere:
        assert nowhere.lost(b"f", base, base) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_owner_that_cannot_be_given_is_named_after_the_apply(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(place.write("f", "f\n", 0o666), 12345, 12345)
    session, _words = run(place, "copy", "echo more >> f")

    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(form, "set_attribute", refuse)
    monkeypatch.setattr(disk, "set_owner", refuse)
    remarks = session.changes.apply("f").applied.remarks
    assert [remark.text for remark in remarks] == ["lost its owner: Operation not permitted"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets these flags")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("flag", ["i", "a"])
def test_a_directory_above_that_may_not_change(place: Place, view: str, flag: str) -> None:
    """What cannot land there is in conflict; the rest lands, and an undo says what stays."""
    place.write("d/x", "one\n")
    place.write("y", "one\n")
    session, _words = run(place, view, "echo more >> d/x; rm -f d/z; echo new > d/new; echo more >> y")
    subprocess.run(["chattr", f"+{flag}", place.project / "d"], check=True)
    try:
        conflicts = {os.fsdecode(conflict.path) for conflict in session.changes.apply("f").conflicts}
        assert conflicts == ({"d/x", "d/new"} if flag == "i" else {"d/x"})
        assert sh(place.project, "cat d/x y") == "one\none\nmore"
        session.changes.undo()
        assert sh(place.project, "cat d/x y") == "one\none"
        assert (place.project / "d/new").exists() == (flag == "a"), "no entry leaves such a directory"
    finally:
        subprocess.run(["chattr", f"-{flag}", place.project / "d"], check=True)


# Without root a sandbox has not the id in the list: cp -a says so.
SCRIPTS = {
    "a copy with its list": "cp -p team/f team/g; cp -p team/f g",
    "a directory with its lists": "cp -a team other 2> /dev/null || true",
    "new in a directory with a default list": "mkdir team/n; echo x > team/n/x; echo y > team/y",
    "closed": "mkdir -p team/z/y; echo x > team/z/y/x; chmod 0 team/z/y team/z",
    "a default list of its own": "mkdir q; acl q default 1:7:-1 4:7:-1 32:7:-1; mkdir q/in; echo x > q/in/x",
    "another default list": "mkdir team/q; acl team/q default 1:7:-1 4:7:-1 32:7:-1; echo x > team/q/x; mkdir team/q/d",
    "a list of a directory": f"mkdir d; acl d access 1:7:-1 2:7:{os.getuid()} 4:5:-1 16:7:-1 32:5:-1",
    "lists of old directories": "acl plain default 1:7:-1 4:7:-1 32:7:-1; echo y > plain/y; acl team access",
    "a mask of its own": "umask 077; echo y > team/y; mkdir team/d; echo y > plain/y; install -m 664 team/f team/h",
    "moved there": "echo x > x; mv x team/x; mkdir d; echo z > d/z; mv d team/d",
    "in the place of another": "rm -r plain; mkdir plain; chmod 0 plain; rm -r team; mkdir team; echo x > team/x",
}


OTHERS = ("copy", "level 0", "overlay, checkpoint", "copy, checkpoint")


@pytest.mark.parametrize(("script", "other"), pairs(list(SCRIPTS), OTHERS, 4))
def test_lists_land_alike_in_every_view(place: Place, script: str, other: str) -> None:
    look = "find . -printf '%p %M\\n' | sort; grants $(find . | sort)"
    landed, told = {}, {}
    for view in ("overlay", other):
        sh(place.project, "for each in *; do test ! -e $each || { chmod -R u+rwx $each; rm -r $each; }; done")
        for path in ("team/f", "team/sub/k", "plain/f"):
            place.write(path, "f\n")
        sh(place.project, "acl team default 1:7:-1 2:6:65534 4:5:-1 16:7:-1 32:5:-1; acl team/f access")
        session, told[view] = run(place, view.partition(",")[0], f"set -e\n{SCRIPTS[script]}")
        if "checkpoint" in view:
            session.forks.checkpoint("f", "point")
            told[view] = said(session.changes.of("f"))
        assert not session.changes.apply("f").conflicts
        landed[view] = sh(place.project, look)
        session.changes.undo()
        session.changes.redo()
        assert sh(place.project, look) == landed[view]
        session.changes.undo()
        session.forks.discard("f")
    assert landed == dict.fromkeys(landed, landed["overlay"])
    assert told == dict.fromkeys(told, told["overlay"])
