"""The memory pages that a command writes to, copied ahead of it.

A process shares its memory with the keeper that forked it. The first write to a page copies it: 2.4 µs each, and a
command writes to 1,600, since each use of an object counts a reference in it. The pages hardly differ between commands.
A command that had to copy many pages therefore reports them, and the process that waits for the next command makes the
same copies while it waits.

Rules of this file:
1. A page that is copied ahead has the same content that a later copy would have: it is not written to meanwhile. A
   wrongly chosen page costs memory, nothing else.
2. Only page numbers are passed on.
3. A kernel without MADV_POPULATE_WRITE (before Linux 5.14) or a readable pagemap copies every page when it is written
   to.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]
"""(number of the first page, count)."""

MANY = 150
"""Page faults from which on a command reports its pages."""
MOST_PAGES = 6000
"""Pages that are copied ahead: 23 MiB, more than a keeper has."""
MOST_RANGES = 2000
_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE, madvise(2)."""
_PRESENT, _EXCLUSIVE, _OF_A_FILE = 1 << 63, 1 << 56, 1 << 61
"""Bits in a pagemap entry (Documentation/admin-guide/mm/pagemap.rst); reading them needs no privilege."""
_OWN = _PRESENT | _EXCLUSIVE
_ENTRY = 8
"""Bytes."""
_GAP = 2
"""Pages between two ranges that are merged: a call costs as much as a copy."""


def own_pages() -> list[Range]:
    """Return the private, writable pages that this process does not share, in order. Raise OSError if the kernel does
    not show them."""
    pages: list[int] = []
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for first, count in _writable():
            data = os.pread(pagemap, count * _ENTRY, first * _ENTRY)
            entries = memoryview(data)[: len(data) // _ENTRY * _ENTRY].cast("Q")
            pages += [first + at for at, entry in enumerate(entries) if entry & _OWN == _OWN and not entry & _OF_A_FILE]
    finally:
        os.close(pagemap)
    return ranges(pages)


def _writable() -> Iterator[Range]:
    """Yield the private mappings that this process may write to (proc_pid_maps(5))."""
    descriptor = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)
    for line in text.splitlines():
        place, permissions, _rest = line.split(b" ", 2)
        if permissions[1:2] == b"w" and permissions[3:4] == b"p":
            start, _dash, end = place.partition(b"-")
            yield int(start, 16) // mmap.PAGESIZE, (int(end, 16) - int(start, 16)) // mmap.PAGESIZE


def ranges(pages: Iterable[int]) -> list[Range]:
    """Return sorted page numbers as ranges, including small gaps between them."""
    found: list[Range] = []
    first = end = -1
    for page in pages:
        if first >= 0 and page <= end + _GAP:
            end = page + 1
            continue
        if first >= 0:
            found.append((first, end - first))
        first, end = page, page + 1
    return [*found, (first, end - first)] if first >= 0 else found


def joined(one: Sequence[Range], other: Sequence[Range]) -> list[Range]:
    """Return the pages in both; only ``other`` if both together would be too many."""
    both = ranges(sorted({page for first, count in (*one, *other) for page in range(first, first + count)}))
    fits = sum(count for _first, count in both) <= MOST_PAGES and len(both) <= MOST_RANGES
    return both if fits else list(other)


def copy_ahead(wanted: Iterable[Range]) -> bool:
    """Copy these pages for this process. Return False if the kernel does not support it. A missing page is skipped."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    done = False
    for first, count in wanted:
        if madvise(first * mmap.PAGESIZE, count * mmap.PAGESIZE, _POPULATE_WRITE) == 0:
            done = True
    return done
