"""Files that are kept as they were read: never one that is another file by now, and never more than the limit."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from clocks import give_way
from inner_path import inner
from mudroom.stage.file_cache import LIMIT, FileCache
from mudroom.stage.reader import ANEW
from mudroom.stage.stamp import Stamp, is_settled, stamp_of
from tiers import each, examples

pytestmark = pytest.mark.both_users

SECOND = 10**9


class Content(list[bytes]):
    """What can be told apart from another one, and be watched."""


reads: list[bytes] = []


def read(path: bytes) -> Content:
    reads.append(path)
    with open(path, "rb") as stream:
        return Content([stream.read()])


def length(content: Content) -> int:
    reads.append(b"length")
    return len(content[0])


def later(seconds: float = 10.0) -> Callable[[], int]:
    """A clock by which everything that is there has been there for long."""
    return lambda: time.time_ns() + int(seconds * SECOND)


def settle(path: Path) -> os.stat_result:
    """Wait until whatever is done to it now gives it other times: 20 ms, spent looking at the clock."""
    info = path.stat()
    while (found := stamp_of(inner(path))) is None or not is_settled(found.ctime, time.time_ns()):
        give_way()
    return info


@pytest.fixture
def file(tmp_path: Path) -> Path:
    reads.clear()
    path = tmp_path / "file"
    path.write_bytes(b"one")
    return path


def test_it_is_read_once(file: Path) -> None:
    kept, path = FileCache(clock=later()), inner(file)
    first = kept.of(path, read)
    assert kept.of(path, read) is first == [b"one"]
    assert reads == [path]
    assert ANEW.of(path, read) is not ANEW.of(path, read)


def test_what_it_comes_to_is_worked_out_once(file: Path) -> None:
    kept, path = FileCache(clock=later()), inner(file)
    assert [kept.derive(kept.of(path, read), length) for _time in range(3)] == [3, 3, 3]
    assert reads == [path, b"length"]
    assert kept.derive(Content([b"else"]), length) == 4  # of what is not kept, each time
    assert ANEW.derive(Content([b"other"]), length) == 5


def rename_over(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(data)
    beside.replace(path)


def write_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.write(data)


def write_through_another_name(path: Path, data: bytes) -> None:
    other = path.with_suffix(".link")
    os.link(path, other)
    write_in_place(other, data)
    other.unlink()


def remove_and_make(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("change", [rename_over, write_in_place, write_through_another_name, remove_and_make])
def test_another_one_of_the_same_size_and_time_is_read(file: Path, change: Callable[[Path, bytes], None]) -> None:
    kept, path = FileCache(), inner(file)
    before = settle(file)
    old = kept.of(path, read)
    assert kept.of(path, read) is old
    for data in (b"two", b"six", b"one"):
        change(file, data)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        assert kept.of(path, read) == [data]
        settle(file)
        assert kept.of(path, read) == kept.of(path, read) == [data]


def test_one_that_has_just_been_written_is_not_kept(file: Path) -> None:
    """What is done to it within the same tick of the clock would not be seen."""
    path, ctime = inner(file), file.stat().st_ctime_ns
    kept = FileCache(clock=lambda: ctime)
    assert kept.of(path, read) is not kept.of(path, read)
    assert (len(kept), kept.weight) == (0, 0)


def test_one_that_is_gone_is_gone(file: Path) -> None:
    kept, path = FileCache(clock=later()), inner(file)
    kept.of(path, read)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        kept.of(path, read)
    assert (len(kept), kept.weight) == (0, 0)


@each(
    ("ctime", "now", "settled"),
    [
        (5 * SECOND + 1, 5 * SECOND + 1, False),
        (5 * SECOND + 1, 5 * SECOND + 20_000_001, False),
        (5 * SECOND + 1, 5 * SECOND + 20_000_002, True),
        (5 * SECOND, 7 * SECOND, False),  # a file system without fractions of seconds
        (5 * SECOND, 8 * SECOND + 1, True),
        (9 * SECOND + 1, 5 * SECOND, False),  # the clock was set back
    ],
)
def test_when_a_tick_is_over(ctime: int, now: int, settled: bool) -> None:
    assert is_settled(ctime, now) is settled


def test_a_link_is_not_looked_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("file")
    found = stamp_of(inner(tmp_path / "link"))
    assert isinstance(found, Stamp)
    assert found.size == len("file")
    assert stamp_of(inner(tmp_path / "absent")) is None
    assert stamp_of(inner(tmp_path / "file/below")) is None


def test_of_two_who_ask_at_once_one_reads(file: Path) -> None:
    kept, path = FileCache(clock=later()), inner(file)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(place: bytes) -> Content:
        begun.set()
        assert go_on.wait(60)
        return read(place)

    found: list[Content] = []
    threads = [threading.Thread(target=lambda: found.append(kept.of(path, slowly))) for _each in range(4)]
    threads[0].start()
    assert begun.wait(60)
    for one in threads[1:]:
        one.start()
    go_on.set()
    for one in threads:
        one.join()
    assert len({id(one) for one in found}) == 1
    assert reads == [path]


def test_what_is_read_while_somebody_writes_is_never_older_than_what_was_there(file: Path) -> None:
    """All contents have one size, and one mtime; some are written in place, some renamed over, as fast as it goes."""
    kept, path, written, ended = FileCache(), inner(file), [0], threading.Event()
    file.write_bytes(b"%08d" % 0)

    def write() -> None:
        try:
            for number in range(1, 400):
                (rename_over if number % 3 else write_in_place)(file, b"%08d" % number)
                os.utime(file, ns=(SECOND, SECOND))
                written[0] = number
                if number % 100 == 0:
                    settle(file)  # so that something is kept in between
        finally:
            ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while not ended.is_set() or looks == 0:
        before = written[0]
        assert int(kept.of(path, read)[0]) >= before
        looks += 1
    writer.join()
    assert int(kept.of(path, read)[0]) == 399


def test_what_is_written_several_times_within_a_tick_is_read_each_time(file: Path) -> None:
    kept, path = FileCache(), inner(file)
    for number in range(1_000):
        write_in_place(file, b"%03d" % number)
        os.utime(file, ns=(SECOND, SECOND))
        assert kept.of(path, read) == [b"%03d" % number]


def test_what_was_asked_for_longest_ago_makes_room(tmp_path: Path) -> None:
    reads.clear()
    paths = [inner(tmp_path / name) for name in "abc"]
    for path in paths:
        Path(os.fsdecode(path)).write_bytes(b"x" * 4_000)
    kept = FileCache(10_000, later())
    a, b, c = paths
    for path in (a, b, a, c, a, b):
        kept.of(path, read)
    assert reads == [a, b, c, b]
    assert kept.weight == 8_000


def test_what_is_larger_than_the_limit_is_not_kept_and_puts_nothing_out(tmp_path: Path) -> None:
    reads.clear()
    small, large = inner(tmp_path / "small"), inner(tmp_path / "large")
    Path(os.fsdecode(small)).write_bytes(b"x")
    Path(os.fsdecode(large)).write_bytes(b"x" * 10_001)
    kept = FileCache(10_000, later())
    for path in (small, large, small, large):
        kept.of(path, read)
    assert reads == [small, large, large]


def test_small_ones_are_not_kept_without_end(tmp_path: Path) -> None:
    kept = FileCache(20 << 10, later())
    for number in range(100):
        path = tmp_path / str(number)
        path.write_bytes(b"")
        kept.of(inner(path), read)
    assert len(kept) == 20
    assert kept.weight <= 20 << 10 <= LIMIT


def test_what_is_put_out_is_let_go_with_what_it_comes_to(tmp_path: Path) -> None:
    kept, one, other = FileCache(5_000, later()), tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.write_bytes(b"x" * 4_000)
    value = kept.of(inner(one), read)
    made = weakref.ref(kept.derive(value, Content))
    held = weakref.ref(value)
    del value
    gc.collect()
    assert held() is not None
    assert made() is not None
    kept.of(inner(other), read)
    gc.collect()
    assert held() is None
    assert made() is None


def test_what_cannot_be_read_is_no_answer_and_is_not_kept(file: Path) -> None:
    kept, path = FileCache(clock=later()), inner(file)

    def fail(_path: bytes) -> Content:
        raise ValueError("damaged")

    for _time in range(2):
        with pytest.raises(ValueError, match="damaged"):
            kept.of(path, fail)
    assert (len(kept), kept.weight) == (0, 0)


class Using(RuleBasedStateMachine):
    """A few files that are read, written and removed in any order, with little room to keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = FileCache(9_000, later())
        self.place = Path(tempfile.mkdtemp())
        self.there: dict[str, bytes] = {}
        self.number = 0

    names = st.sampled_from("abcd")

    @rule(name=names, size=st.sampled_from([0, 10, 3_000, 8_999, 9_100]))
    def write(self, name: str, size: int) -> None:
        self.number += 1
        data = (b"%d " % self.number).ljust(size, b".")
        path = self.place / name
        rename_over(path, data)
        os.utime(path, ns=(self.number, self.number))
        self.there[name] = data

    @rule(name=names)
    def remove(self, name: str) -> None:
        if self.there.pop(name, None) is not None:
            (self.place / name).unlink()

    @rule(name=names)
    def ask(self, name: str) -> None:
        path = inner(self.place / name)
        if name not in self.there:
            with pytest.raises(FileNotFoundError):
                self.kept.of(path, read)
            return
        found = self.kept.of(path, read)
        assert found == [self.there[name]]
        assert self.kept.derive(found, length) == len(self.there[name])

    @invariant()
    def it_is_bounded(self) -> None:
        assert 0 <= self.kept.weight <= 9_000
        assert (len(self.kept) == 0) == (self.kept.weight == 0)

    def teardown(self) -> None:
        reads.clear()
        shutil.rmtree(self.place)


def test_however_it_is_used() -> None:
    run_state_machine_as_test(
        Using, settings=settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
    )
