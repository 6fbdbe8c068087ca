"""Secrets are found from one search to the next: what the kernel tells, and what has to be looked at again."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from clocks import give_way
from mudroom.stage.stamp import is_settled
from mudroom.stage.views import directory_watch, secret
from mudroom.stage.views.directory_watch import DirectoryChanges, DirectoryWatch, is_told
from mudroom.stage.views.preflight import MountPoint, crossed, parse_mounts
from mudroom.stage.views.secret import Finder
from tiers import examples

pytestmark = [
    pytest.mark.alone,  # other tests use up the user's instances of inotify
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux"),
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch begins with the second search, however small the project is."""
    monkeypatch.setattr(secret, "_WATCHED", 0)
    monkeypatch.setattr(secret, "_QUIET", 0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/a/b/c").mkdir(parents=True)
    (tmp_path / "project/d").mkdir()
    return tmp_path / "project"


@pytest.fixture
def finder(project: Path, tmp_path: Path) -> Iterator[Finder]:
    """One that watches."""
    made = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    made.find(())
    assert made.find(()) == ([], True)
    assert is_watching(made)
    yield made
    made.close()


def is_watching(finder: Finder) -> bool:
    return finder._watch is not None


def found(finder: Finder) -> list[str]:
    paths, complete = finder.find(())
    assert complete
    return [os.fsdecode(path) for path in paths]


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls that look at a directory from now on."""
    calls: list[object] = []
    for name in ("lstat", "scandir"):
        real = getattr(os, name)

        def counted(path: object, real: Callable[[object], object] = real) -> object:
            calls.append(path)
            return real(path)

        monkeypatch.setattr(os, name, counted)
    return calls


def test_a_quiet_project_costs_nothing(finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch)
    assert [found(finder) for _ in range(10)] == [[]] * 10
    assert calls == []


def test_a_change_costs_its_own_directory(finder: Finder, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "a/b/.env").write_text("KEY=1")
    calls = calls_of(monkeypatch)
    assert found(finder) == ["a/b/.env"]
    assert calls == [os.fsencode(project / "a/b")] * 2
    (project / "a/b/.env").unlink()
    assert found(finder) == []


def test_a_process_for_one_command_watches_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for number in range(secret._WATCHED):
        (project / f"d/{number}").mkdir()
        os.utime(project / f"d/{number}", (1, 1))
    monkeypatch.setattr(secret, "is_settled", lambda *_given: True)
    finder = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    watching = []
    for _search in range(5):
        assert found(finder) == []
        watching.append(is_watching(finder))
    finder.close()
    assert watching == [False, False, False, True, True]


def moved_in(project: Path) -> None:
    (project.parent / "outside").mkdir()
    (project.parent / "outside/.env").write_text("KEY=1")
    (project.parent / "outside").rename(project / "a/moved")


def moved_within(project: Path) -> None:
    (project / "a/b/c/.env").write_text("KEY=1")
    (project / "a/b").rename(project / "a/moved")
    (project / "a/b").mkdir()
    (project / "a/b/c").mkdir()


def made_again(project: Path) -> None:
    """While somebody holds the old one open, so that it lives on without a name."""
    held = os.open(project / "a/b", os.O_RDONLY)
    shutil.rmtree(project / "a/b")
    (project / "a/b/c").mkdir(parents=True)
    (project / "a/b/c/.env").write_text("KEY=1")
    os.close(held)


def deep(project: Path) -> None:
    (project / "new/and/deep").mkdir(parents=True)
    (project / "new/and/deep/.env").write_text("KEY=1")


def linked(project: Path) -> None:
    (project.parent / "plain").write_text("KEY=1")
    os.link(project.parent / "plain", project / "d/.env")


def exchanged(project: Path) -> None:
    """The whole project is replaced by another directory."""
    (project.parent / "other/x").mkdir(parents=True)
    (project.parent / "other/x/.env").write_text("KEY=1")
    project.rename(project.parent / "old")
    (project.parent / "other").rename(project)


def above(project: Path) -> None:
    """The directory above the project is replaced by one that holds another project."""
    top = project.parent
    other = top.parent / (top.name + "-other")
    (other / "project/x").mkdir(parents=True)
    (other / "project/x/.env").write_text("KEY=1")
    top.rename(top.parent / (top.name + "-old"))
    other.rename(top)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (moved_in, ["a/moved/.env"]),
        (moved_within, ["a/moved/c/.env"]),
        (made_again, ["a/b/c/.env"]),
        (deep, ["new/and/deep/.env"]),
        (linked, ["d/.env"]),
        (exchanged, ["x/.env"]),
        (above, ["x/.env"]),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_what_becomes_of_directories(finder: Finder, project: Path, change: object, expected: list[str]) -> None:
    change(project)  # type: ignore[operator]
    assert found(finder) == expected
    assert found(finder) == expected


def test_a_directory_that_is_opened_to_us(project: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is closed to root")
    (project / "d/.env").write_text("KEY=1")
    (project / "d").chmod(0)
    finder = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    assert [found(finder) for _ in range(3)] == [[]] * 3
    assert is_watching(finder)
    (project / "d").chmod(0o700)
    assert found(finder) == ["d/.env"]
    (project / "d").chmod(0)
    assert found(finder) == []
    finder.close()
    again = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    assert found(again) == []
    (project / "d").chmod(0o700)  # the time of the directory above stays
    assert found(again) == ["d/.env"]


def test_more_events_than_the_kernel_keeps(finder: Finder, project: Path) -> None:
    with open("/proc/sys/fs/inotify/max_queued_events") as stream:
        for number in range(int(stream.read()) // 2 + 2):
            os.mkdir(project / "d/x")
            if number % 2:
                os.mkdir(project / "a/x")
                os.rmdir(project / "a/x")
            os.rmdir(project / "d/x")
    (project / "a/.env").write_text("KEY=1")
    before = finder._watch
    assert found(finder) == ["a/.env"]
    assert finder._watch is not before


def test_a_watch_that_breaks_off_begins_later_each_time(
    finder: Finder, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a project whose directories move all the time would be watched anew with every command."""
    monkeypatch.setattr(finder, "_patience", 1)
    waited = []
    for number in range(4):
        (project / "d").rename(project / "e")
        (project / "e").rename(project / "d")
        os.utime(project / "d", (number, number))
        while not all(is_settled(path.stat().st_ctime_ns, time.time_ns()) for path in (project, project / "d")):
            give_way()  # else it depends on the time how many searches find something new
        began = False
        for searches in range(2 * secret._MOST_QUIET):
            assert found(finder) == []
            if began := is_watching(finder):
                waited.append(searches)
                break
        assert began
    assert waited == sorted(set(waited)), waited


def test_a_copy_in_another_process_does_not_take_the_events(finder: Finder, project: Path) -> None:
    finder._patience = 9
    (project / "d/.env").write_text("KEY=1")
    child = os.fork()
    if not child:
        try:
            os._exit(0 if found(finder) == ["d/.env"] and not is_watching(finder) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert found(finder) == ["d/.env"]
    assert is_watching(finder)


def test_no_more_than_half_of_what_the_user_may_have(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "limit"
    monkeypatch.setattr(directory_watch, "_LIMIT", str(limit))
    limit.write_text("9\n")
    with pytest.raises(OSError, match="No space left"):
        DirectoryWatch(os.fsencode(project), 5)
    watch = DirectoryWatch(os.fsencode(project), 4)
    for path in (b"", b"a", b"d", b"a/b"):
        watch.add(path)
    with pytest.raises(OSError, match="No space left"):
        watch.add(b"a/b/c")
    watch.close()
    limit.write_text("6\n")
    finder = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    assert [found(finder) for _ in range(3)] == [[]] * 3
    assert not is_watching(finder)
    (project / "a/b/c/.env").write_text("KEY=1")
    assert found(finder) == ["a/b/c/.env"]


def test_directories_that_are_gone_make_room(finder: Finder, project: Path) -> None:
    watch = finder._watch
    assert watch is not None
    before = len(watch._paths)
    for number in range(20):
        (project / f"a/{number}/x").mkdir(parents=True)
        assert found(finder) == []
        shutil.rmtree(project / f"a/{number}")
    assert found(finder) == []
    assert (finder._watch, len(watch._paths)) == (watch, before)


def test_one_directory_at_two_places(project: Path) -> None:
    """Mounted twice, or moved between the events and now: its events would name one of them."""
    watch = DirectoryWatch(os.fsencode(project), 1)
    watch.add(b"a")
    watch.add(b"a")
    (project / "a").rename(project / "z")
    with pytest.raises(FileExistsError):
        watch.add(b"z")
    watch.close()


@pytest.mark.both_users
@pytest.mark.root
def test_a_file_system_that_is_mounted_in_the_project(finder: Finder, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    subprocess.run(["mount", "-t", "tmpfs", "none", project / "d"], check=True)
    try:
        (project / "d/.env").write_text("KEY=1")
        assert found(finder) == ["d/.env"]
    finally:
        subprocess.run(["umount", project / "d"], check=True)
    assert found(finder) == []


@pytest.mark.parametrize(
    ("place", "kind", "is_kept"), [("elsewhere", "tmpfs", True), ("project/d", "tmpfs", False), ("", "nfs4", False)]
)
def test_the_table_of_mounts_changes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str, is_kept: bool
) -> None:
    watch = DirectoryWatch(os.fsencode(project), 1)
    watch.add(b"")
    before = watch._table.mounts()
    (*_, around) = crossed(os.fsencode(tmp_path), before)
    with_another = [*before, MountPoint(os.fsencode(tmp_path / place), kind, -1, around.number)]
    tables = iter([with_another, with_another, [*before]])
    monkeypatch.setattr(watch._table, "mounts", lambda: next(tables))
    (project / "new").touch()
    assert watch.changed() == (DirectoryChanges({b""}, is_passing=False) if is_kept else None)
    if is_kept:
        assert watch.changed() == DirectoryChanges(set(), is_passing=True)
        assert watch.changed() == DirectoryChanges(set(), is_passing=True), "it has gone again"
    watch.close()


def test_descriptors_are_given_back(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.listdir("/proc/self/fd")
    finder = Finder(os.fsencode(project), os.fsencode(tmp_path / "index"))
    found(finder)
    found(finder)
    assert is_watching(finder)
    (project / "d").rename(project / "e")
    found(finder)
    finder.close()
    finder.close()
    monkeypatch.setattr(directory_watch, "LOCAL", frozenset())
    with pytest.raises(OSError, match="not supported"):
        DirectoryWatch(os.fsencode(project), 1)
    assert os.listdir("/proc/self/fd") == before


MOUNTS = b"""\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:30 / /home rw - %(home)s server:/home rw
31 30 0:31 / /home/me/my\\040project rw,nosuid shared:5 master:1 - %(project)s none rw
32 31 0:32 / /home/me/my\\040project/data rw - %(below)s none rw
33 30 0:33 / /home/me/my\\040project-too rw - fuse.sshfs none rw
"""


@pytest.mark.parametrize(
    ("home", "project", "below", "expected"),
    [
        (b"nfs4", b"ext4", b"tmpfs", True),
        (b"ext4", b"virtiofs", b"ext4", False),
        (b"ext4", b"overlay", b"fuse.bindfs", False),
        (b"ext4", b"9p", b"ext4", False),
    ],
)
def test_file_systems_that_others_change(home: bytes, project: bytes, below: bytes, expected: bool) -> None:
    table = parse_mounts(MOUNTS % {b"home": home, b"project": project, b"below": below})
    assert is_told(b"/home/me/my project", table) is expected
    assert is_told(b"/home/me", table) is False
    assert is_told(b"/srv", table) is True
    assert is_told(b"/home/me/my project-too/x", table) is False
    assert is_told(b"/srv", []) is False


def test_events_are_read_as_the_kernel_writes_them() -> None:
    data = struct.pack("iIII", 1, 0x100, 0, 16) + b"name".ljust(16, b"\0") + struct.pack("iIII", 2, 0x8000, 0, 0)
    assert list(directory_watch._parse(data)) == [(1, 0x100, b"name"), (2, 0x8000, b"")]


NAMES = st.sampled_from("abc")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


class SecretsMachine(RuleBasedStateMachine):
    """A user at work in a project, and searches at any time: one that goes on finds what a new one finds."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="mudroom-watch-"))
        self.project = self.top / "project"
        self.project.mkdir()
        self.finder = Finder(os.fsencode(self.project), os.fsencode(self.top / "index"))
        self.held: list[int] = []

    def teardown(self) -> None:
        self.finder.close()
        for descriptor in self.held:
            os.close(descriptor)
        shutil.rmtree(self.top)

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.attempt(lambda: os.makedirs(self.project / path))

    @rule(path=PATHS, name=st.sampled_from([".env", "server.pem", "plain"]))
    def write(self, path: str, name: str) -> None:
        self.attempt(lambda: (self.project / path / name).write_text("x"))

    @rule(path=PATHS, to=PATHS)
    def move(self, path: str, to: str) -> None:
        self.attempt(lambda: os.rename(self.project / path, self.project / to))

    @rule(path=PATHS)
    def move_out_and_in(self, path: str) -> None:
        self.attempt(lambda: os.rename(self.project / path, self.top / "out"))
        self.attempt(lambda: os.rename(self.top / "out", self.project / "back"))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        shutil.rmtree(self.project / path, ignore_errors=True)

    @rule(path=PATHS)
    def hold(self, path: str) -> None:
        self.attempt(lambda: self.held.append(os.open(self.project / path, os.O_RDONLY)))

    @rule(path=PATHS, to=PATHS)
    def link(self, path: str, to: str) -> None:
        self.attempt(lambda: os.symlink(self.project / path, self.project / to))

    @rule()
    def another_process_searches(self) -> None:
        with closing(Finder(os.fsencode(self.project), os.fsencode(self.top / "index"))) as another:
            another.find(())

    @rule()
    def search(self) -> None:
        with closing(Finder(os.fsencode(self.project), os.fsencode(self.top / "nowhere"))) as new:
            assert self.finder.find(()) == new.find(())
        os.unlink(self.top / "nowhere")

    @staticmethod
    def attempt(act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except OSError:
            pass  # there is no such directory, or one is there

    @invariant()
    def few_descriptors(self) -> None:
        while len(self.held) > 4:
            os.close(self.held.pop(0))


def test_what_goes_on_finds_what_begins_anew() -> None:
    limits = hypothesis_settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    run_state_machine_as_test(SecretsMachine, settings=limits)
