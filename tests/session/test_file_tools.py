"""File tools and processes see the same files of a fork: before a command, while it runs, and after it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import give_way
from conftest import Place, full_listing, listing
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.client import Running
from mudroom.session import Stdio
from mudroom.stage.originals.ground import Ground
from mudroom.vault.forks import flatten
from mudroom.vault.forks.editor import Editor
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from satellites import needs

VIEWS = pytest.mark.parametrize("view", ["overlay", "copy"])


@VIEWS
def test_what_tools_write_commands_read_and_the_other_way_round(place: Place, view: str) -> None:
    place.write("kept", "k\n")
    place.write("edited", "one\ntwo\n")
    place.write("d/gone", "g\n")
    before = full_listing(place.project)
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    session.forks.new("f")
    files = session.forks.files("f")
    files.edit("edited", "two", "2")
    files.write("new/file", "n\n")
    files.delete("d/gone")
    result = session.run([b"sh", b"-c", b"cat edited new/file; ls d; echo more >> new/file; mv kept moved"], fork="f")
    assert result.stdout == b"one\n2\nn\n"
    assert files.read("new/file") == b"n\nmore\n"
    assert files.look("kept") is None
    assert files.read("moved") == b"k\n"
    assert sorted(files.list()) == ["d", "edited", "moved", "new"]
    files.write("moved", "changed\n")
    changes = {change.path: change.verb for change in session.changes.of("f").changes if change.entry.kind == "file"}
    assert changes == {
        b"edited": "modified",
        b"new/file": "added",
        b"d/gone": "deleted",
        b"kept": "deleted",
        b"moved": "added",
    }
    assert full_listing(place.project) == before
    assert session.changes.apply("f").conflicts == ()
    assert {name: entry[2] for name, entry in listing(place.project).items() if entry[0] == "file"} == {
        "edited": b"one\n2\n",
        "new/file": b"n\nmore\n",
        "moved": b"changed\n",
    }
    assert files.read("moved") == b"changed\n"  # the fork goes on, on what was applied
    files.write("again", "a\n")
    assert [change.path for change in session.changes.of("f").changes] == [b"again"]


@VIEWS
def test_while_a_command_runs_tools_go_through_its_mount(place: Place, view: str) -> None:
    place.write("file", "base\n")
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("before", "b\n")
    inside, ours = os.pipe()
    answer, theirs = os.pipe()
    script = b"echo running; read line; cat file new; rm before; echo made > made; read line; echo end"
    seen: dict[str, object] = {}

    def tool() -> None:
        assert os.read(answer, 8) == b"running\n"
        seen["before"] = files.read("before")
        files.edit("file", "base", "edited")
        files.write("new", "from the tool\n")
        os.write(ours, b"go\n")
        text = b""
        while b"from the tool\n" not in text:
            text += os.read(answer, 64)
        while files.look("made") is None:
            give_way()
        while not files.read("made"):
            give_way()
        seen["made"], seen["gone"] = files.read("made"), files.look("before")
        os.write(ours, b"end\n")

    thread = threading.Thread(target=tool)
    thread.start()
    session.run([b"sh", b"-c", script], fork="f", stdio=Stdio(stdin=inside, stdout=theirs))
    thread.join()
    for descriptor in (inside, ours, answer, theirs):
        os.close(descriptor)
    assert seen == {"before": b"b\n", "made": b"made\n", "gone": None}
    assert files.read("file") == b"edited\n"
    assert {change.path for change in session.changes.of("f").changes} == {b"file", b"new", b"made"}
    assert (place.project / "file").read_text() == "base\n"


def test_a_tool_waits_while_a_command_starts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write between the command's first output and the use of its mount reaches the command."""
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("before", "b\n")
    tools = session.forks.tools
    go_live = tools.go_live
    writing = threading.Thread(target=files.write, args=("new", "from the tool\n"))

    def late(name: str, running: Running, masked: frozenset[bytes]) -> None:
        writing.start()
        writing.join(0.3)  # it ends if it does not wait
        go_live(name, running, masked)

    monkeypatch.setattr(tools, "go_live", late)
    result = session.run([b"sh", b"-c", b"until test -s new; do :; done; cat new"], fork="f", timeout=20)
    writing.join()
    assert result.stdout == b"from the tool\n"
    assert {change.path for change in session.changes.of("f").changes} == {b"before", b"new"}


def test_a_tool_waits_while_a_command_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool reads after the mount is gone is what the command has left."""
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("file", "before\n")
    tools = session.forks.tools
    refresh = tools.refresh
    seen: list[bytes] = []
    waited: list[bool] = []
    reading = threading.Thread(target=lambda: seen.append(files.read("file")))

    def late(fork: Fork) -> None:
        if not reading.ident:
            reading.start()
            reading.join(0.3)  # it ends if it does not wait
            waited.append(reading.is_alive())
        refresh(fork)

    monkeypatch.setattr(tools, "refresh", late)
    session.run([b"sh", b"-c", b"echo after > file"], fork="f")
    reading.join()
    assert waited == [True]
    assert seen == [b"after\n"]


def test_an_edit_by_the_user_after_the_tools_is_a_conflict(place: Place) -> None:
    place.write("file", "base\n")
    session = place.session()
    session.forks.new("f")
    session.forks.files("f").write("file", "fork\n")
    place.write("file", "user\n")
    session.forks.flush("f")
    (change,) = session.changes.of("f").changes
    assert change.original_known
    landed = session.changes.apply("f")
    assert [conflict.path for conflict in landed.conflicts] == [b"file"]
    assert (place.project / "file").read_text() == "user\n"
    lines = b"".join(session.changes.diff("f"))
    assert b"-base\n+fork\n" in lines


def test_forks_never_see_each_others_buffers(place: Place) -> None:
    place.write("file", "base\n")
    session = place.session()
    for name in ("one", "two"):
        session.forks.new(name)
        session.forks.files(name).write("file", name)
    session.forks.new("child", parent="one")
    session.forks.files("one").write("file", "later")
    assert [session.forks.files(name).read("file") for name in ("one", "two", "child")] == [b"later", b"two", b"one"]
    session.forks.checkpoint("one", "here")
    session.forks.files("one").delete("file")
    session.forks.rollback("one", "here")
    assert session.forks.files("one").read("file") == b"later"


def test_what_was_not_flushed_is_flushed_at_the_end(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.files("f").write("file", "x")
    session.close()
    again = place.session()
    assert [change.path for change in again.changes.of("f").changes] == [b"file"]
    with pytest.raises(UsageError, match="there is no fork named nope"):
        again.forks.files("nope")


@needs("fsspec")
def test_a_fork_as_an_fsspec_file_system_by_its_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    from mudroom.ext.fsspec.filesystem import MudroomFileSystem

    place.write("file", "base\n")
    place.session().forks.new("f")
    monkeypatch.setenv("MUDROOM_STATE", str(place.state))
    monkeypatch.setenv("HOME", str(place.home))
    system = MudroomFileSystem(fork="f", project=str(place.project))
    assert system.cat("file") == b"base\n"
    with system.open("/d/new", "w") as stream:
        stream.write("n\n")
    assert set(system.ls("/", detail=False)) == {"/d", "/file"}
    assert not Path(place.project / "d").exists()


@pytest.fixture
def instances(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Make fsspec instances on one fork, each with a session of its own, as in processes of their own."""
    pytest.importorskip("fsspec")
    from mudroom.ext.fsspec.filesystem import MudroomFileSystem

    place.write("file", "base\n")
    place.session().forks.new("f")
    monkeypatch.setenv("MUDROOM_STATE", str(place.state))
    monkeypatch.setenv("HOME", str(place.home))
    return lambda: MudroomFileSystem(fork="f", project=str(place.project))


@needs("fsspec")
def test_instances_see_what_others_have_closed(place: Place, instances: Callable[[], Any]) -> None:
    one, two = instances(), instances()
    writer = one.open("file", "wb")
    writer.write(b"one\n")
    assert two.cat("file") == one.cat("file") == b"base\n", "the last closed version"
    writer.close()
    assert two.cat("file") == instances().cat("file") == b"one\n"
    two.mv("file", "d/moved")
    assert one.find("") == ["/d/moved"]
    two.rm("d", recursive=True)
    assert one.ls("") == []
    session = place.session()
    session.run([b"sh", b"-c", b"echo command > made"], fork="f")
    assert one.cat("made") == two.cat("made") == b"command\n"
    session.forks.files("f").write("made", "tools\n")
    session.forks.flush("f")
    assert one.cat("made") == two.cat("made") == b"tools\n"
    two.pipe("made", b"two\n")
    assert session.forks.files("f").read("made") == b"two\n"


@needs("fsspec")
def test_a_writer_is_told_of_another_that_closed_first(instances: Callable[[], Any]) -> None:
    one, two = instances(), instances()
    writers = [one.open("file", "wb"), two.open("file", "wb"), two.open("other", "wb")]
    for number, writer in enumerate(writers):
        writer.write(b"%d" % number)
    writers[0].close()
    with pytest.raises(OSError, match="another writer") as told:
        writers[1].close()
    assert told.value.errno == errno.ESTALE
    writers[2].close()
    for system in (one, two, instances()):
        assert (system.cat("file"), system.cat("other")) == (b"0", b"2")


@needs("fsspec")
def test_a_transaction_is_written_as_one(instances: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = instances(), instances()
    flushes: list[str] = []
    flush = one._flush

    def counted() -> None:
        flushes.append("")
        flush()

    monkeypatch.setattr(one, "_flush", counted)
    with one.transaction:
        for number in range(5):
            one.pipe(f"d/{number}", b"x")
    one.pipe({f"e/{number}": b"x" for number in range(5)})
    assert len(flushes) == 2
    assert len(two.find("")) == 11


def test_unflushed_writes_never_replace_those_of_others(place: Place) -> None:
    """The later flush keeps the version that is there, says so, and keeps the refused content."""
    mine, other = place.session(), place.session()
    mine.forks.new("f")
    files, others = mine.forks.files("f"), other.forks.files("f")
    for path in ("both", "mine", "d/a"):
        files.write(path, "first\n")
    mine.forks.flush("f")
    others.write("both", "other\n")
    others.write("d/new", "other\n")
    files.write("both", "mine\n")
    files.write("mine", "mine\n")
    files.delete("d", recursive=True)
    other.forks.flush("f")
    mine.forks.flush("f")
    notes = mine.forks.unsaid()
    assert [note.partition(":")[0] for note in notes] == ["both", "d"]
    (kept,) = (place.state).rglob("refused/*/both")
    assert str(kept) in notes[0] and kept.read_text() == "mine\n"
    for tools in (files, others):
        assert {path: tools.read(path) for path in ("both", "mine", "d/a", "d/new")} == {
            "both": b"other\n", "mine": b"mine\n", "d/a": b"first\n", "d/new": b"other\n",
        }  # fmt: skip


def test_a_fork_of_the_same_name_is_another_one(place: Place) -> None:
    place.write("a", "project\n")
    mine, other = place.session(), place.session()
    mine.forks.new("f")
    files = mine.forks.files("f")
    files.write("a", "first\n")
    mine.forks.flush("f")
    files.write("b", "not flushed\n")
    other.forks.discard("f")
    other.forks.new("f")
    assert files.read("a") == b"project\n"
    files.write("c", "second\n")
    assert [change.path for change in mine.changes.of("f").changes] == [b"c"]
    mine.close()
    assert [change.path for change in other.changes.of("f").changes] == [b"c"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.deep)])
def test_layers_of_file_tools_are_merged(place: Place, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Checkpoints between the writes of file tools cost neither descriptors nor depth."""
    if count < 100:
        monkeypatch.setattr(flatten, "DEEP", 6)
        monkeypatch.setattr(flatten, "KEPT", 2)
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    most = 0
    for number in range(count):
        files.write("d/count", f"{number}")
        files.write(f"d/{number % 7}", f"{number}")
        session.forks.checkpoint("f", f"c{number}")
        if number < 2 * flatten.DEEP:
            most = max(most, descriptors())
        assert descriptors() <= most
    assert len(session.vault.fork("f").state.layers) <= flatten.DEEP
    assert session.forks.last_checkpoint("f") == f"c{count - 2}"  # the fork stands on the last one
    for number in (count - 1, 1, count - 5, count // 2):
        session.forks.rollback("f", f"c{number}")
        assert files.read("d/count") == b"%d" % number
        assert sorted(files.list("d")) == sorted(["count", *map(str, range(min(7, number + 1)))])
    session.close()


def test_a_fork_without_a_checkpoint_has_no_last_one(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    with pytest.raises(UsageError, match="f has no checkpoint from which it differs"):
        session.forks.last_checkpoint("f")


def test_closing_goes_on_after_a_fork_that_cannot_be_flushed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    session = place.session()
    for name in ("one", "two"):
        session.forks.new(name)
        session.forks.files(name).write("file", name)
    flush = session.forks.flush

    def failing(name: str) -> None:
        if name == "one":
            raise OSError(errno.EIO, "Input/output error")
        flush(name)

    monkeypatch.setattr(session.forks, "flush", failing)
    with pytest.raises(OSError, match="Input/output error"):
        session.close()
    assert [change.path for change in place.session().changes.of("two").changes] == [b"file"]
    assert descriptors() <= before + 3, "what was opened for the first fork"


def test_a_session_can_be_closed_whose_fork_another_has_thrown_away(place: Place) -> None:
    mine, other = place.session(), place.session()
    mine.forks.new("f")
    mine.forks.files("f").write("a", "1\n")
    mine.forks.flush("f")
    other.forks.discard("f")
    mine.close()
    assert other.vault.find("f") is None


def test_nobody_discards_a_fork_before_its_file_tools_show_it_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.session.forks.PATIENCE", 0.02)
    mine, other = place.session(), place.session()
    mine.forks.new("f")
    mine.forks.files("f").write("a", "1\n")
    refresh, refusals = Editor.refresh, []

    def beside(editor: Editor) -> None:
        with pytest.raises(UsageError, match="a command is running in the fork f") as refusal:
            other.forks.discard("f")
        refusals.append(refusal)
        refresh(editor)

    monkeypatch.setattr(Editor, "refresh", beside)
    mine.close()
    assert refusals
    other.forks.discard("f")


def test_file_tools_of_a_fork_that_is_discarded_while_all_are_reloaded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    mine, other = place.session(), place.session()
    for name in ("f", "g"):
        mine.forks.new(name)
        mine.forks.files(name).write("a", "1\n")
        mine.forks.flush(name)
    ground = OpenFork.ground

    def discarded(opened: OpenFork) -> Ground:
        if other.vault.find("f") is not None:
            other.forks.discard("f")
        return ground(opened)

    monkeypatch.setattr(OpenFork, "ground", discarded)
    mine.forks.tools.refresh_all()
    assert mine.forks.files("g").read("a") == b"1\n"
    with pytest.raises(UsageError, match="no fork named f"):
        mine.forks.files("f").read("a")
    mine.close()
    other.close()
    assert descriptors() <= before + 3


def test_the_record_of_a_fork_that_is_discarded_while_it_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    session.run((b"sh", b"-c", b"echo 1 > a"), fork="f")
    fork = session.vault.fork("f")
    assert fork.record is not None

    def lstat(path: bytes) -> os.stat_result:
        monkeypatch.undo()
        found = os.lstat(path)
        place.session().forks.discard("f")
        return found

    monkeypatch.setattr(os, "lstat", lstat)
    assert fork.record is None


def test_a_reader_beside_a_flush_sees_the_old_file_or_the_new_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is never read from a file that is being written, or missed while it is replaced."""
    mine, other = place.session(), place.session()
    mine.forks.new("f")
    files, others = mine.forks.files("f"), other.forks.files("f")
    files.write("file", "old\n")
    mine.forks.flush("f")
    assert others.read("file") == b"old\n"
    seen: list[bytes] = []
    fchmod = os.fchmod

    def late(descriptor: int, mode: int) -> None:
        seen.append(others.read("file"))
        fchmod(descriptor, mode)

    files.write("file", "new\n")
    monkeypatch.setattr(os, "fchmod", late)
    mine.forks.flush("f")
    monkeypatch.undo()
    assert seen and set(seen) == {b"old\n"}
    assert others.read("file") == b"new\n"
