"""Run work in a child that is stopped by the kernel at each call that changes something on disk (``faults.c``).

    outcome = watched(work, kill_before(17))
    outcome = watched(work, failing(17, errno.ENOSPC))

Every call is counted, from 1, whoever makes it: CPython, SQLite, ctypes. What happens at each is up to a *decider*.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PASS, KILL_BEFORE, KILL_AFTER, HALF, INTERRUPT, ASK_AGAIN = range(6)
SPACE, SHORT, NOTED, UNKNOWN, ENDED = 1, 2, 4, 8, 16


class Call(NamedTuple):
    number: int
    """1, 2, … of those that are counted; 0 for what is only noted."""
    name: str
    what: str
    """The paths that it names."""
    traits: int = 0

    @property
    def needs_space(self) -> bool:
        """Whether a full disk may refuse it."""
        return bool(self.traits & SPACE)

    @property
    def can_be_short(self) -> bool:
        """Whether it writes more than one byte, so that half of it can be written."""
        return bool(self.traits & SHORT)

    @property
    def has_ended(self) -> bool:
        """Whether it was made already: the answer before was ASK_AGAIN. Then PASS, or anything else to kill."""
        return bool(self.traits & ENDED)


Decider = Callable[[Call], int]
"""What to do at a call: PASS …, or a negative errno to fail with."""


class Outcome(NamedTuple):
    killed: bool
    error: tuple[str, str, str] | None
    """What was raised: the type, its text, the traceback."""
    value: Any
    calls: list[Call]
    unknown: list[str]
    """Calls that ``faults.c`` has no name for: the count cannot be trusted then."""


def passing(_call: Call) -> int:
    return PASS


def at(number: int, action: int) -> Decider:
    """``action`` at one call, all others pass."""
    return lambda call: action if call.number == number else PASS


def full_from(number: int) -> Decider:
    """From this call on the disk is full: what needs no space still works."""
    return lambda call: -errno.ENOSPC if call.number >= number and call.needs_space else PASS


def dead_from(number: int) -> Decider:
    """From this call on nothing can be changed any more."""
    return lambda call: -errno.EIO if call.number >= number else PASS


def short_at(number: int) -> Decider:
    """This call writes half of what it should; from then on the disk is full."""

    def decide(call: Call) -> int:
        if call.number == number:
            return HALF
        return -errno.ENOSPC if call.number > number and call.needs_space else PASS

    return decide


def without_flags(decide: Decider) -> Decider:
    """As on a file system that has only rename(2). What ``decide`` does, it does to the calls made instead, too."""

    def decider(call: Call) -> int:
        action = decide(call)
        return -errno.EINVAL if action == PASS and call.name == "renameat2" and not call.has_ended else action

    return decider


@functools.cache
def why_impossible() -> str:
    """Why nothing can be watched here; empty if it can."""
    if shutil.which("gcc") is None:
        return "needs gcc (./check installs it)"
    if os.uname().machine not in ("x86_64", "aarch64"):
        return f"faults.c knows x86_64 and aarch64, not {os.uname().machine}"
    try:
        outcome = watched(functools.partial(os.mkdir, b"/"), passing)
    except OSError as error:
        return f"ptrace(2) or seccomp(2) is refused: {error}"
    return "" if [call.name for call in outcome.calls] == ["mkdir"] else "the calls of a child are not seen"


@functools.cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).with_name("faults.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"mudroom-faults-{os.geteuid()}-{digest}.so"
    if not built.exists():
        beside = built.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", beside, source], check=True)
        beside.rename(built)
    return ctypes.CDLL(str(built), use_errno=True)


_DECIDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)


def watched(work: Callable[[], Any], decide: Decider) -> Outcome:
    """Run ``work`` in a child, ask ``decide`` at every call that changes something, and wait for its end.

    ``work`` returns something that can be pickled. What ``decide`` raises ends the child and comes out here.
    """
    library = _library()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(library, work, write)
    os.close(write)
    calls: list[Call] = []
    unknown: list[str] = []
    raised: list[BaseException] = []

    def decider(number: int, name: bytes, what: bytes, traits: int) -> int:
        call = Call(number, name.decode(), os.fsdecode(what), traits)
        if traits & UNKNOWN:
            unknown.append(call.what)
            return PASS
        if not call.has_ended:
            calls.append(call)
        try:
            return decide(call) if number else PASS
        except BaseException as error:  # noqa: BLE001 - nothing may pass through C; it is raised again below
            raised.append(error)
            return KILL_BEFORE

    with os.fdopen(read, "rb") as stream:
        try:
            status = _watch(library, pid, _DECIDER(decider))
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        report = stream.read()
    if raised:
        raise raised[0]
    killed = os.WIFSIGNALED(status)
    assert killed or os.waitstatus_to_exitcode(status) == 0, f"the child ended with {status:#x}"
    error, value = (None, None) if killed else pickle.loads(report)
    return Outcome(killed, error, value, calls, unknown)


def _watch(library: ctypes.CDLL, pid: int, decider: Any) -> int:
    status = library.faults_watch(pid, 1, decider)
    while status == -errno.EINTR:  # the handler of the signal has run by now, and has not raised
        status = library.faults_watch(pid, 0, decider)
    if status < 0:
        raise OSError(-status, os.strerror(-status))
    return int(status)


def _child(library: ctypes.CDLL, work: Callable[[], Any], report: int) -> None:
    import traceback

    code = 70
    sys.dont_write_bytecode = True  # a module that is loaded here first is no call of the work
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(0)
        failed = library.faults_begin()
        if failed:
            raise OSError(-failed, os.strerror(-failed))
        found: tuple[Any, Any]
        try:
            found = (None, work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told and judges
            found = ((type(error).__name__, str(error), traceback.format_exc()), None)
        library.faults_end()
        os.write(report, pickle.dumps(found))
        code = 0
    finally:
        os._exit(code)
