"""Start a keeper after a command that found none."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal makes enumerations
import fcntl
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.errors import UsageError
from mudroom.ext.keeper.variables import at_start, may_share
from mudroom.policy.config import places
from mudroom.typing import Any

PROTOCOL = "mudroom-native-5"
"""Names, request and answers of the program (``src/native/native.h``)."""
DIRECTORY = b"/keeper"
"""Below the state directory."""
IDLE = 600.0
"""Seconds without a command after which a keeper ends."""
LOOK = 15.0
"""Seconds between two times that a keeper checks its code and its directory."""
PAUSE = 30.0
"""Seconds between two attempts: a keeper that cannot live does not cost every command an interpreter."""
_DIGITS = frozenset("0123456789abcdef")
_LOCALE = {b"LC_ALL": b"C.UTF-8"}
"""Of a keeper's interpreter. Its commands have that of their callers."""


def is_wanted(environ: Mapping[bytes, bytes]) -> bool:
    """Return whether a command may leave a keeper behind. Not in CI, where the machine is thrown away, or waits for
    every process: most CI systems set CI=true."""
    return environ.get(b"CI", b"").lower() in (b"", b"0", b"false")


def start(
    program: str, environ: Mapping[bytes, bytes], wanted: bytes, *, idle: float = IDLE, look: float = LOOK
) -> int:
    """Start a keeper and return its pid at once; 0 if none is to be started now. ``program`` runs it (``python -c``).
    ``wanted``: the protocol and the names of a keeper for all and of one for these variables, as the program
    ``mudroom`` tells them to its script; twice the same name where one for all cannot serve it.

    The keeper has none of this process's descriptors, and neither its directory, terminal, session nor process group.
    From its environment it gets only the variables that are read at an interpreter's start, and none if it is for all.
    It is a child of this process, which does not wait for it.
    """
    protocol, *names = os.fsdecode(wanted).split(" ")
    if protocol != PROTOCOL or [len(name) for name in names] != [32, 32] or not _DIGITS.issuperset("".join(names)):
        return 0  # this code is newer than the program; or the variable was set by hand
    variables = at_start(environ)
    if names[0] != names[1] and may_share(variables):
        variables = {}
    name = names[bool(variables)]
    try:
        place = places(environ).state + DIRECTORY
        if os.stat(os.path.dirname(place)).st_uid != os.geteuid():
            return 0  # the state of another user whose HOME root has
        if sys.getfilesystemencoding() != "utf-8" or not os.path.exists("/proc/self/cgroup"):
            return 0  # a keeper would refuse this process (``command.py``)
        with Descriptor(open_directory(place)) as directory:
            if not _may_try(directory, name):
                return 0
            if not _make_room(place, directory, name):
                return 0
        return os.posix_spawn(
            sys.executable,
            [
                sys.executable,
                *_options(),
                "-c",
                program,
                os.fsdecode(place),
                name,
                str(idle),
                str(look),
                own_root(),
                *_before(() if variables else os.fsdecode(environ.get(b"PYTHONPATH", b"")).split(":")),
            ],
            variables | _LOCALE,
            file_actions=_nothing_of_ours(),
            setsid=True,
            setsigmask=(),
            setsigdef=[number for number in _signal.valid_signals() if number not in _FIXED],
        )
    except (OSError, UsageError):
        return 0  # a limit is reached, or HOME means nothing: commands run without a keeper


_FIXED = frozenset((_signal.SIGKILL, _signal.SIGSTOP))


def _options() -> list[str]:
    """Return this interpreter's options, for another one, without those that are variables. With ``-P`` it does not
    look for modules in the current directory, where a project's files are."""
    return ["-P", *(option for option in sys.orig_argv[1:2] if option in _OPTIONS)]


_OPTIONS = ("-E", "-I", "-s", "-Es", "-sE")
"""``src/native/name.c``."""


def own_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def _before(without: Sequence[str] = ()) -> list[str]:
    """Return the directories that an interpreter searches before it finds this package. Only the keeper can see whether
    another mudroom was installed there. ``without``: those that its variables name, and the keeper's do not."""
    site = sys.modules.get("site")
    users = getattr(site, "ENABLE_USER_SITE", False) and getattr(site, "USER_SITE", None)
    own = os.stat(own_root() + "/mudroom")
    at = next((at for at, path in enumerate(sys.path) if _is_at(path + "/mudroom", own)), len(sys.path))
    before = [path for path in sys.path[:at] if path not in without]
    return [*before, users] if users and users not in sys.path else before


def _is_at(path: str, found: os.stat_result) -> bool:
    """Return whether a path leads to the given file. PYTHONPATH may spell it differently."""
    try:
        return os.path.samestat(os.stat(path), found)
    except OSError:
        return False


def open_directory(path: bytes) -> int:
    """Return a directory descriptor for ``path``, which is created if missing. Raise OSError if it is not this user's
    alone, or a link to one."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(directory)
        raise PermissionError
    return directory


def _may_try(directory: int, name: str) -> bool:
    """Return whether an attempt is due, and note it in the lock file's mtime, the time of the last attempt or
    command."""
    # Only one of several processes gets this lock; it is held until the caller closes the descriptor.
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # NFS locks no directory (flock(2)): the lock file leaves one keeper, of several interpreters
    lock = name + ".lock"
    with suppress(FileNotFoundError):
        if time.time() - PAUSE < os.stat(lock, dir_fd=directory).st_mtime <= time.time():
            return False
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    os.utime(descriptor)
    os.close(descriptor)
    return True


def _make_room(place: bytes, directory: int, name: str) -> bool:
    """End the keeper of another interpreter, set of variables, control group or limits, since a state directory has one
    (60 MB), and remove the lock files of those that have died. Return False if it was started or used within ``PAUSE``:
    two would end each other at every command."""
    others = [entry for entry in os.listdir(directory) if entry.endswith(".lock") and entry != name + ".lock"]
    if not others:
        return True
    from mudroom.ext.keeper.status import retire, unlink_vacant

    if retire(place, map(os.fsencode, others), time.time() - PAUSE):
        return True
    # so that it does not count as one that starts; the file may also be a living keeper's, which refused this command
    unlink_vacant(place + b"/" + os.fsencode(name + ".lock"))
    return False


def _nothing_of_ours() -> list[tuple[Any, ...]]:
    """Return the spawn actions that leave a process no descriptor but /dev/null."""
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    for word in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor used for the listing
            if int(word) > 2 and os.get_inheritable(int(word)):
                actions.append((os.POSIX_SPAWN_CLOSE, int(word)))
    return actions
