"""The state directory: closed to all users but its own, from its root.

Rules of this file:
1. A missing directory, and each missing one above it, is created with mode 0700: mkdir(2) never gives more, even for a
   moment, and a umask only takes rights away. The XDG Base Directory Specification asks for 0700, too.
2. A directory that belongs to this user, but is open to others, is closed to them if it is empty, or if it has only
   names that mudroom uses. Any other directory was not made for mudroom (``MUDROOM_STATE=/tmp``): it is refused, and
   its mode stays.
3. Another user's directory is refused, and so is a directory below it, which that user can replace at any time
   (CVE-2026-126329: root with the HOME of its caller, as ``sudo`` may keep it), and so is a symbolic link: its target
   may be replaced.
"""

from __future__ import annotations

import os
import stat
import sys

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MaskedRights, MudroomError, UsageError
from mudroom.stage import disk

if sys.platform == "win32":
    from mudroom.core.registry import twin

    nt_private = twin("private")

PRIVATE = 0o700
_OTHERS = 0o077
_NAMES = frozenset(
    b"agents answers certificates compiled doors engines hooks images keeper lost+found runtime serve trust variables "
    b"vaults worker".split()
)
"""Names in a state directory. mkfs makes ``lost+found`` in a volume's root."""
_PREFIXES = (b"certify-", b"doctor-")
_UNMAPPED = 65534
"""Owner of a file whose owner has no uid in this user namespace (/proc/sys/kernel/overflowuid, user_namespaces(7))."""
_O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)


def project_name(project: bytes, key: bytes = b"") -> bytes:
    """Return a readable name for a project's part of the state, with a hash of ``key``, else of the project's path."""
    from _blake2 import blake2b

    readable = bytes(c if chr(c).isalnum() and c < 128 else ord("-") for c in os.path.basename(project))[:40]
    return (readable or b"project") + b"-" + blake2b(key or project, digest_size=6).hexdigest().encode()


def answers_directory(project: bytes, state: bytes) -> bytes:
    return state + b"/answers/" + project_name(project)


def answer_files(project: bytes, state: bytes | None, name: bytes) -> tuple[bytes, ...]:
    """Return the paths of a project's answer files that mudroom reads; they may be missing."""
    users = project + b"/.mudroom/local/" + name
    return (users,) if state is None else (users, answers_directory(project, state) + b"/" + name)


def require_private(state: bytes) -> None:
    """Create the state directory if it is missing, and close it to other users.

    Raise UsageError if it cannot belong to this user alone, MudroomError if it cannot be created or closed.
    """
    state = state.rstrip(b"/") or b"/"
    if sys.platform == "win32":
        nt_private.require(state, _NAMES, _PREFIXES)
        return
    try:
        try:
            info = os.lstat(state)
        except FileNotFoundError:
            _require_own_way(state, os.path.dirname(state))
            make_private(state)
            info = os.lstat(state)
        if not stat.S_ISDIR(info.st_mode) or info.st_mode & _OTHERS or info.st_uid != disk.user():
            _close(state, info)
        _require_own_way(state, os.path.dirname(state))
    except OSError as error:
        hint = "set MUDROOM_STATE to a directory you may write to"
        raise MudroomError(f"the state directory {show(state)} cannot be used: {error.strerror}", hint) from error


def make_private(path: bytes) -> None:
    """Create a directory, and each missing one above it. Raise OSError, or MaskedRights if the umask also takes this
    user's rights; the directory is not created then."""
    if sys.platform == "win32":
        nt_private.make(path)
        return
    above = os.path.dirname(path)
    if above != path and not os.path.lexists(above):
        make_private(above)
    try:
        os.mkdir(path, PRIVATE)
    except FileExistsError:
        return  # created meanwhile by another process; if it is no directory, the caller's next call fails
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & PRIVATE != PRIVATE:
        os.rmdir(path)
        raise MaskedRights(PRIVATE & ~mode)


def _require_own_way(state: bytes, above: bytes) -> None:
    """Raise UsageError if another user owns a directory above the state directory."""
    user = disk.user()
    while above != os.path.dirname(above):
        try:
            info = os.lstat(above)
        except FileNotFoundError:
            above = os.path.dirname(above)
            continue
        if stat.S_ISLNK(info.st_mode):
            _require_own_way(state, os.path.realpath(above))
        if info.st_uid not in (0, user) and not (info.st_uid == _UNMAPPED and _leaves_ids_out()):
            raise UsageError(
                f"the state directory {show(state)} lies in {show(above)}, which belongs to another user "
                f"(uid {info.st_uid})",
                "set MUDROOM_STATE to a directory of your own",
            )
        above = os.path.dirname(above)


def _leaves_ids_out() -> bool:
    """Return whether this user namespace maps some ids only: it shows the owners of other files as ``_UNMAPPED``."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as stream:
            return stream.read().split() != ["0", "0", "4294967295"]
    except FileNotFoundError:
        return False  # a system without user namespaces


def _close(state: bytes, info: os.stat_result) -> None:
    name = f"the state directory {show(state)}"
    if stat.S_ISLNK(info.st_mode):
        raise UsageError(
            f"{name} is a symbolic link", f"MUDROOM_STATE={show(os.path.realpath(state))} names its target"
        )
    if not stat.S_ISDIR(info.st_mode):
        raise UsageError(f"{name} is not a directory", "set MUDROOM_STATE to a directory of your own")
    if info.st_uid != disk.user():
        raise UsageError(
            f"{name} belongs to another user (uid {info.st_uid})", "set MUDROOM_STATE to a directory of your own"
        )
    with Descriptor(disk.open_path(state, _O_PATH | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)) as opened:
        if not os.path.samestat(os.fstat(opened), info):
            raise UsageError(f"{name} is being replaced", "run the command again")
        place = b"/proc/self/fd/%d" % opened  # an O_PATH descriptor cannot be listed or chmod'ed itself
        place = place if os.path.exists(place) else state
        foreign = [entry for entry in os.listdir(place) if entry not in _NAMES and not entry.startswith(_PREFIXES)]
        if foreign or info.st_mode & stat.S_ISVTX:
            held = f"holds {show(min(foreign))}, which is not mudroom's" if foreign else "it is meant for all of them"
            raise UsageError(
                f"{name} is open to other users (mode {stat.S_IMODE(info.st_mode):04o}), and {held}",
                f"MUDROOM_STATE={show(os.path.join(state, b'mudroom'))} is made for you alone",
            )
        os.chmod(place, PRIVATE)
        if os.fstat(opened).st_mode & _OTHERS:
            raise MudroomError(
                f"{show(state)} is on a file system that does not keep permissions",
                "set MUDROOM_STATE to a directory on another one, such as a volume: MUDROOM_STATE=/var/tmp/mudroom",
            )
