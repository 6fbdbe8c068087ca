"""Pages of memory that are copied ahead of a command."""

from __future__ import annotations

import itertools
import mmap
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import Kept, kept

from box import if_namespaces
from mudroom.ext.keeper.server import MANY, MOST_PAGES, Range, copy_ahead, joined, ranges
from tiers import each

__all__ = ["kept"]  # a fixture

SOURCE = Path(__file__).parents[3] / "src"

LEARNT = """
import ctypes, mmap, os, sys
from mudroom.ext.keeper.server import copy_ahead, own_pages

SIZE, PAGES = 64, {pages}
memory = mmap.mmap(-1, SIZE * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
memory.write(bytes([7]) * len(memory))
first = ctypes.addressof(ctypes.c_char.from_buffer(memory)) // mmap.PAGESIZE

def write():
    for page in PAGES:
        memory[page * mmap.PAGESIZE] = 1

def own():
    return [page - first for at, count in own_pages() for page in range(at, at + count) if 0 <= page - first < SIZE]

def child(act):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, repr(act()).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader) as stream:
        return eval(stream.read())

def learn():
    write()
    return own()

def ahead():
    copy_ahead([(first + page, 1) for page in PAGES])
    return own(), bytes(memory) == bytes([7]) * len(memory)

print(child(own), child(learn), child(ahead))
"""


def test_a_process_knows_what_it_has_written_to_and_the_next_has_the_copies() -> None:
    """In between, the content is what it was."""
    pages = [0, 1, 10, 30, 63]
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{LEARNT.format(pages=pages)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == f"[] {pages} ({pages}, True)"


@given(st.sets(st.integers(0, 200)))
def test_ranges_hold_the_pages_and_small_gaps(pages: set[int]) -> None:
    found = ranges(sorted(pages))
    held = [page for first, count in found for page in range(first, first + count)]
    assert held == sorted(set(held)) and set(held) >= pages
    assert all({first, first + count - 1} <= pages for first, count in found)
    assert all(after[0] - sum(before) > 2 for before, after in itertools.pairwise(found))


@each(
    ("one", "other", "both"),
    [
        ([], [(5, 1)], [(5, 1)]),
        ([(5, 1)], [(9, 2)], [(5, 1), (9, 2)]),
        ([(5, 1)], [(6, 2)], [(5, 3)]),
        ([(0, MOST_PAGES)], [(MOST_PAGES + 9, 1)], [(MOST_PAGES + 9, 1)]),
    ],
)
def test_pages_of_several_commands(one: Sequence[Range], other: Sequence[Range], both: list[Range]) -> None:
    assert joined(one, other) == both


def test_a_page_that_is_not_there_is_left_out() -> None:
    assert not copy_ahead([(1, 1), ((1 << 47) // mmap.PAGESIZE + 5, 3)])


@pytest.mark.both_users
@if_namespaces
def test_a_command_copies_few_pages_itself(kept: Kept) -> None:
    """The budget of page faults of a command's process, up to the middle of its command."""
    kept.start()
    for _learning in range(3):
        assert kept("run", "--no", "--", "cat").returncode == 0
        kept.wait_prepared()
    (process,) = kept.waiting()
    before = minor_faults(process)
    with kept.popen("run", "--no", "--", "sh", "-c", "echo; cat", stdin=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"\n"
        count = minor_faults(process) - before
        command.communicate()
    assert 0 < count < MANY


def minor_faults(pid: int) -> int:
    """Return a field of proc_pid_stat(5)."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[10 - 3])
