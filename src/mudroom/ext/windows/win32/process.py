"""Processes and the boot, as /proc tells them on Linux: which process a number means, and since when the machine runs.

A number is used again as soon as its process is gone and no handle is left, so a process is identified by its number
and its creation time ("GetProcessTimes").
"""

from __future__ import annotations

import time
from ctypes import byref, c_uint64, sizeof

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library

TICK = 100
"""Nanoseconds in a FILETIME's unit."""
UNIX = 116_444_736_000_000_000
"""The FILETIME for 1970-01-01 ("FILETIME": since 1601-01-01)."""
_TIME_OF_DAY = 3
"""SystemTimeOfDayInformation in SYSTEM_INFORMATION_CLASS."""


def started(library: Library, pid: int) -> int:
    """Return a process's creation time, in nanoseconds since 1970, or 0 if it does not exist, or is another user's and
    may not be queried."""
    try:
        process = library.OpenProcess(w.PROCESS_QUERY_LIMITED_INFORMATION, 0, pid)
    except CallFailed:
        return 0
    try:
        if has_ended(library, process):
            return 0
        return _times(library, process)[0]
    finally:
        library.CloseHandle(process)


def has_ended(library: Library, process: int) -> bool:
    """Return whether a handle's process has ended: its object stays while any process has a handle."""
    code = w.DWORD()
    library.GetExitCodeProcess(process, byref(code))
    return code.value != w.STILL_ACTIVE  # or it has ended with this very code


def interrupt_call(library: Library, thread: int) -> None:
    """End the blocking call, if any, of a thread in this process ("CancelSynchronousIo"). ``thread``: its number."""
    try:
        handle = library.OpenThread(w.THREAD_TERMINATE, 0, thread)
    except CallFailed:
        return  # it has just ended
    try:
        library.CancelSynchronousIo(handle)
    except CallFailed as failed:
        if failed.code not in (w.ERROR_NOT_FOUND, w.ERROR_CALL_NOT_IMPLEMENTED):  # not in a call at this moment
            raise
    finally:
        library.CloseHandle(handle)


def _times(library: Library, process: int) -> tuple[int, int, int]:
    """Return the creation time since 1970, and the times in user and kernel mode, in nanoseconds."""
    rows = [w.FILETIME() for _row in range(4)]  # created, exited, kernel, user
    library.GetProcessTimes(process, *(byref(row) for row in rows))
    created, _exited, kernel, user = ((row.dwHighDateTime << 32 | row.dwLowDateTime) for row in rows)
    return (created - UNIX) * TICK, user * TICK, kernel * TICK


def boot_id(library: Library) -> str:
    """Return a text that differs after each boot, like boot_id in random(4): the boot time, as the system keeps it
    (SYSTEM_TIMEOFDAY_INFORMATION in ntexapi.h: BootTime, CurrentTime, TimeZoneBias, TimeZoneId, a DWORD, BootTimeBias).
    The bias is the amount by which the clock was set since."""
    place = (c_uint64 * 6)()
    library.NtQuerySystemInformation(_TIME_OF_DAY, byref(place), sizeof(place), None)
    return f"windows-{place[0] - place[4]:x}"


def running() -> int:
    """Return nanoseconds since the boot, sleep included, as CLOCK_BOOTTIME: GetTickCount64 counts so."""
    return time.monotonic_ns()


def start_time(pid: int) -> int:
    """Return ``started`` by this machine's library."""
    return started(library_here(), pid)


def boot_name() -> str:
    """Return this machine's ``boot_id``, or "" if the system does not tell it."""
    try:
        return boot_id(library_here())
    except CallFailed:
        return ""


_LIBRARIES: list[Library] = []


def library_here() -> Library:
    """Return this machine's calls, loaded once."""
    if not _LIBRARIES:
        _LIBRARIES.append(Library())
    return _LIBRARIES[0]
