"""Stories of a project with mounts inside, each played in a mount namespace of its own: ``test_inner_mounts.py``.

python inner_mount_story.py STORY DIRECTORY
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.session import Session

SPANNED = "is mounted inside the project, which no overlay can span"


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


class Ground:
    """A project, a volume beside it, and the state."""

    def __init__(self, root: Path) -> None:
        self.project, self.volume, self.state, self.home = (root / name for name in ("project", "volume", "state", "h"))
        for path in (self.project, self.volume, self.home):
            path.mkdir()
        self.inside = self.project / "node_modules"
        self.write(self.project / "f", "one\n")
        self.write(self.volume / "lib/index.js", "lib\n")

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def bind(self) -> None:
        self.inside.mkdir(exist_ok=True)
        mount("--bind", self.volume, self.inside)

    def open(self, settings: Settings | None = None) -> Session:
        where = {"state": os.fsencode(self.state), "home": os.fsencode(self.home), "environ": os.environb}
        return Session.open(os.fsencode(self.project), **where, settings=settings or Settings())  # type: ignore[arg-type]

    @property
    def bases(self) -> Path:
        return next((self.state / "vaults").iterdir()) / "bases"

    def real(self) -> dict[str, bytes]:
        places = (self.project, self.volume)
        return {str(path): path.read_bytes() for top in places for path in top.rglob("*") if path.is_file()}


def sh(session: Session, script: str, fork: str | None = None) -> Result:
    result = session.run([b"sh", b"-ec", script.encode()], fork=fork)
    assert result.exit_code == 0, result
    return result


def nothing(session: Session) -> None:
    """Run a command that changes nothing, as ``mudroom run`` does."""
    session.forks.discard_unchanged(sh(session, "true").fork)


def changed(result: Result) -> set[bytes]:
    return {change.path for change in result.changeset.changes}


def require_one_copy(session: Session, result: Result) -> None:
    """The fork stands on a snapshot, and its commands work in an overlay of it."""
    fork = session.vault.fork(result.fork)
    assert fork.state.base != "live", fork.state
    assert not fork.is_copy


def conflict_paths(session: Session, fork: str) -> set[bytes]:
    return {conflict.path for conflict in session.changes.apply(fork).conflicts}


def bind(ground: Ground) -> None:
    """A command sees what is mounted, changes both, and nothing real before it is approved."""
    ground.bind()
    before = ground.real()
    with ground.open() as session:
        result = sh(session, "cat node_modules/lib/index.js; echo two >> f; rm node_modules/lib/index.js")
        assert any(SPANNED in note for note in result.notes), result.notes
        require_one_copy(session, result)
        assert ground.real() == before
        assert changed(result) == {b"f", b"node_modules/lib/index.js"}
        assert conflict_paths(session, result.fork) == {b"node_modules/lib/index.js"}
        assert (ground.project / "f").read_text() == "one\ntwo\n"
        session.changes.undo()
    assert ground.real() == before


def as_a_user(ground: Ground) -> None:
    """The mounts are of a namespace in which the user has no rights, as root's are on every machine."""
    ground.bind()
    os.mkdir(ground.project / "cache")
    mount("-t", "tmpfs", "tmpfs", ground.project / "cache")
    ground.write(ground.project / "cache/data", "data\n")
    become_a_user()
    before = ground.real()
    with ground.open() as session:
        for word in ("two", "three"):
            result = sh(session, f"cat node_modules/lib/index.js cache/data; echo {word} >> f; rm -r node_modules/*")
            require_one_copy(session, result)
            assert ground.real() == before
            session.forks.discard(result.fork)
        result = sh(session, "echo two >> f")
        assert session.changes.apply(result.fork).conflicts == ()
        assert (ground.project / "f").read_text() == "one\ntwo\n"
        session.changes.undo()
    assert ground.real() == before


def become_a_user() -> None:
    """Go on as user 1000, without privileges over the mounts that are there."""
    import ctypes

    user, group = os.geteuid(), os.getegid()
    new_user = 0x10000000
    assert ctypes.CDLL(None, use_errno=True).unshare(new_user) == 0
    for name, line in (("setgroups", "deny"), ("uid_map", f"1000 {user} 1"), ("gid_map", f"1000 {group} 1")):
        Path("/proc/self", name).write_text(line)
    assert os.geteuid() == 1000


def another_file_system(ground: Ground) -> None:
    """A volume with a device of its own is seen and staged like the rest."""
    ground.inside.mkdir()
    mount("-t", "tmpfs", "tmpfs", ground.inside)
    data = ground.write(ground.inside / "deep/data", "data\n")
    with ground.open() as session:
        result = sh(session, "cat node_modules/deep/data; echo x > node_modules/deep/data; echo two >> f")
        require_one_copy(session, result)
        assert data.read_text() == "data\n"
        assert conflict_paths(session, result.fork) == {b"node_modules/deep/data"}
    assert (ground.project / "f").read_text() == "one\ntwo\n"
    assert data.read_text() == "data\n"


def too_large_a_volume(ground: Ground) -> None:
    """A volume that is too large for a copy does not keep commands from running: they see it empty, and are told."""
    ground.inside.mkdir()
    mount("-t", "tmpfs", "tmpfs", ground.inside)
    ground.write(ground.inside / "data", "data\n" * 1000)
    with ground.open(Settings(copy_limit=1000)) as session:
        result = sh(session, 'test -z "$(ls node_modules)"; echo two >> f')
        said = "not in the copy: node_modules (too large for copy.limit), which commands see empty"
        assert said in result.notes, result.notes
        assert session.changes.apply(result.fork).conflicts == ()
    assert (ground.inside / "data").exists()


def no_disk(ground: Ground) -> None:
    """A file system that is none of this machine's disks is not entered, as before."""
    ground.inside.mkdir()
    mount("-t", "devpts", "-o", "newinstance", "devpts", ground.inside)
    with ground.open() as session:
        result = sh(session, 'test -z "$(ls node_modules)"; echo two >> f')
        said = "not in the copy: node_modules (of the network, or of a program), which commands see empty"
        assert said in result.notes, result.notes
        assert session.changes.apply(result.fork).conflicts == ()


def nothing_is_copied_again(ground: Ground) -> None:
    """The next fork gets the snapshot of the last one, with the files that have changed since."""
    ground.write(ground.project / "same", "same\n")
    ground.bind()
    with ground.open() as session:
        nothing(session)
        spare = ground.bases / ".spare/source"
        inode = (spare / "same").stat().st_ino
        assert [path.name for path in ground.bases.iterdir()] == [".spare"]
        ground.write(ground.project / "f", "edited\n")
        ground.write(ground.volume / "lib/more.js", "more\n")
        (ground.volume / "lib/index.js").unlink()
        script = "grep edited f; cat node_modules/lib/more.js; test ! -e node_modules/lib/index.js; echo x > x"
        result = sh(session, script)
        base = ground.bases / session.vault.fork(result.fork).state.base
        assert (base / "source/same").stat().st_ino == inode
        assert not spare.exists(), "a fork has it"
        assert session.changes.apply(result.fork).conflicts == ()
        assert (spare / "same").stat().st_ino == inode
        assert (ground.project / "x").read_text() == "x\n"
        session.changes.undo()
        assert not (ground.project / "x").exists()
        result = sh(session, "test ! -e x; echo y > y")
        session.forks.discard(result.fork)
    assert list(ground.bases.iterdir()) == [], "discarded by the user: its bytes are free"


def copy_view(ground: Ground) -> None:
    """A copy view takes the snapshot of the last one, too; its working copy is its own."""
    ground.write(ground.project / "same", "same\n")
    ground.bind()
    with ground.open(Settings(view="copy")) as session:
        nothing(session)
        inode = (ground.bases / ".spare/source/same").stat().st_ino
        ground.write(ground.project / "f", "edited\n")
        result = sh(session, "grep edited f; cat node_modules/lib/index.js; echo x >> same")
        fork = session.vault.fork(result.fork)
        assert fork.is_copy
        base = ground.bases / fork.state.base / "source/same"
        assert (base.stat().st_ino, base.read_text()) == (inode, "same\n")
        assert session.changes.apply(result.fork).conflicts == ()
    assert (ground.project / "same").read_text() == "same\nx\n"


def damaged_spare(ground: Ground) -> None:
    ground.bind()
    with ground.open() as session:
        nothing(session)
        (ground.bases / ".spare/manifest").write_bytes(b"\xc1")
        result = sh(session, "grep one f; cat node_modules/lib/index.js; echo two >> f")
        assert session.changes.apply(result.fork).conflicts == ()
    assert (ground.project / "f").read_text() == "one\ntwo\n"


def appears_and_disappears(ground: Ground) -> None:
    """A fork of the live project goes on when something is mounted, and when that is gone again."""
    ground.inside.mkdir()
    ground.write(ground.inside / "below", "below\n")
    with ground.open() as session:
        session.forks.new("work")
        assert session.vault.fork("work").state.base == "live"
        sh(session, "echo mine > mine; cat node_modules/below", "work")
        ground.bind()
        script = "cat mine; cat node_modules/lib/index.js; test ! -e node_modules/below; echo more >> mine"
        result = sh(session, script, "work")
        require_one_copy(session, result)
        subprocess.run(["umount", str(ground.inside)], check=True)
        result = sh(session, "cat node_modules/lib/index.js; echo two >> f", "work")
        assert changed(result) == {b"mine", b"f"}, result.changeset
        assert session.changes.apply("work").conflicts == ()
        assert (ground.project / "mine").read_text() == "mine\nmore\n"
        assert (ground.inside / "below").read_text() == "below\n"
    with ground.open() as session:  # with a launcher that has not known the mount
        result = sh(session, "cat node_modules/below; echo live > live")
        state = session.vault.fork(result.fork).state
        assert state.base == "live", (state, result.notes)


def nested(ground: Ground) -> None:
    inner = ground.write(ground.volume.parent / "inner/deep", "deep\n").parent
    (ground.volume / "nested").mkdir()
    ground.bind()
    mount("--bind", inner, ground.inside / "nested")
    before = ground.real()
    with ground.open() as session:
        result = sh(session, "cat node_modules/nested/deep; echo x > node_modules/nested/deep; echo two >> f")
        require_one_copy(session, result)
        assert ground.real() == before
        assert conflict_paths(session, result.fork) == {b"node_modules/nested/deep"}
    assert (inner / "deep").read_text() == "deep\n"


def file_as_mount_point(ground: Ground) -> None:
    over = ground.write(ground.volume.parent / "over", "over\n")
    mount("--bind", over, ground.project / "f")
    with ground.open() as session:
        result = sh(session, "grep over f; echo two >> f; echo g > g")
        require_one_copy(session, result)
        assert over.read_text() == "over\n"
        assert conflict_paths(session, result.fork) == {b"f"}
        assert (ground.project / "g").read_text() == "g\n"
    assert over.read_text() == "over\n"
    subprocess.run(["umount", str(ground.project / "f")], check=True)
    assert (ground.project / "f").read_text() == "one\n"


def read_only(ground: Ground) -> None:
    ground.bind()
    mount("-o", "remount,bind,ro", ground.inside)
    before = ground.real()
    with ground.open() as session:
        result = sh(session, "echo x > node_modules/lib/index.js; mkdir node_modules/new; echo x > node_modules/new/x")
        assert ground.real() == before
        conflicts = conflict_paths(session, result.fork)
        assert b"node_modules/lib/index.js" in conflicts
        assert session.vault.find(result.fork) is not None, "what has not landed stays"
    assert ground.real() == before


def of_another_user(ground: Ground) -> None:
    """Root's commands see and change the files of another user in the copy, as in a copy view."""
    for path in (ground.volume, ground.volume / "lib", ground.volume / "lib/index.js"):
        os.chown(path, 1234, 1234)
    ground.bind()
    with ground.open() as session:
        result = sh(session, "cd node_modules/lib; echo x >> index.js; mv index.js other.js")
        require_one_copy(session, result)
        assert conflict_paths(session, result.fork)
    assert (ground.volume / "lib/index.js").read_text() == "lib\n"
    assert (ground.volume / "lib/index.js").stat().st_uid == 1234


def rename_across(ground: Ground) -> None:
    """A file that a command has moved onto the volume is in one place at least, whatever lands."""
    ground.bind()
    with ground.open() as session:
        result = sh(session, "mv f node_modules/f; mv node_modules/lib/index.js index.js; echo g > g")
        session.changes.apply(result.fork)
        assert (ground.project / "g").read_text() == "g\n"
        places = [ground.project / "f", ground.inside / "f"]
        kept = session.vault.find(result.fork)
        assert any(path.exists() for path in places) or kept is not None, "the file is nowhere"
        assert (ground.volume / "lib/index.js").read_text() == "lib\n"
        session.changes.undo()
        assert (ground.project / "f").read_text() == "one\n"
        assert not (ground.project / "g").exists()
    assert (ground.volume / "lib/index.js").read_text() == "lib\n"


def two_at_once(ground: Ground) -> None:
    """Two commands at once, of two sessions, after a spare was made: one of them gets it, both see all."""
    ground.bind()
    with ground.open() as one, ground.open() as other:
        nothing(one)
        results: dict[str, Result] = {}

        def work(name: str, session: Session) -> None:
            results[name] = sh(session, f"grep one f; cat node_modules/lib/index.js; echo {name} > {name}")

        threads = [threading.Thread(target=work, args=row) for row in (("a", one), ("b", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(results) == {"a", "b"}
        for name, result in results.items():
            require_one_copy(one, result)
            assert changed(result) == {os.fsencode(name)}
            assert one.changes.apply(result.fork).conflicts == ()
        assert [path.name for path in ground.bases.iterdir()] == [".spare"]
    assert {path.name for path in ground.project.iterdir()} >= {"a", "b", "f"}


def edit_of_the_users(ground: Ground) -> None:
    """Both sides changed: merged against the snapshot, which is the common version."""
    ground.write(ground.project / "f", "1\n2\n3\n4\n5\n")
    ground.bind()
    with ground.open() as session:
        result = sh(session, "sed -i s/5/five/ f")
        ground.write(ground.project / "f", "one\n2\n3\n4\n5\n")
        assert session.changes.apply(result.fork).conflicts == ()
    assert (ground.project / "f").read_text() == "one\n2\n3\n4\nfive\n"


STORIES: dict[str, Callable[[Ground], None]] = {
    story.__name__: story
    for story in (
        bind, as_a_user, another_file_system, too_large_a_volume, no_disk, nothing_is_copied_again, copy_view,
        damaged_spare, appears_and_disappears, nested, file_as_mount_point, read_only, of_another_user, rename_across,
        two_at_once, edit_of_the_users,
    )
}  # fmt: skip

if __name__ == "__main__":
    STORIES[sys.argv[1]](Ground(Path(sys.argv[2])))
