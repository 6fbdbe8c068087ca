"""Windows: directories and files in the user's own state, by owner and access list (``ext/windows/win32/owner.py``).

The twin of ``private_directory.py`` and of ``private_file.py``, whose rules hold here: a directory that others may
enter is closed to them if it holds only mudroom's own names, and is refused otherwise. Below the state directory the
entries are not closed one by one: they all inherit its list.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import os
import stat
from collections.abc import Collection

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.core.tree.windows_path import outer_path
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.windows.stage import nt_disk as disk
from mudroom.ext.windows.stage.nt_call import handle_of
from mudroom.ext.windows.win32 import owner
from mudroom.ext.windows.win32.api import CallFailed, Library

_OWN_DIRECTORY = "set MUDROOM_STATE to a directory of your own"


def is_private(descriptor: int) -> bool:
    """Return whether only the user, the system and the administrators may use an open file or directory."""
    return owner.is_private(Library(), handle_of(descriptor))


def is_own(descriptor: int) -> bool:
    """Return whether only the user, the system and the administrators may change an open file or directory."""
    return owner.is_own(Library(), handle_of(descriptor))


def is_private_directory(path: bytes) -> bool:
    """Do as ``is_private``, for a directory that is no link. Raise OSError."""
    with Descriptor(disk.open_root(path)) as opened:
        return is_private(opened)


def require(state: bytes, own: Collection[bytes], prefixes: tuple[bytes, ...]) -> None:
    """Make the state directory if it is missing, and close it to other users. ``own``, ``prefixes``: the names in it
    that are mudroom's. Raise UsageError if it may not be this user's alone, MudroomError if it cannot be made."""
    name = f"the state directory {show(state)}"
    try:
        if not os.path.lexists(outer_path(state)):
            make(state)
        with_link = disk.stat_at(None, state)
        if not stat.S_ISDIR(with_link.st_mode):
            raise UsageError(f"{name} is a link or no directory", _OWN_DIRECTORY)
        with Descriptor(disk.open_root(state)) as opened:
            if is_private(opened):
                return
            foreign = [entry for entry in disk.names(opened) if entry not in own and not entry.startswith(prefixes)]
            if foreign:
                held = f"holds {show(min(foreign))}, which is not mudroom's"
                raise UsageError(f"{name} is open to other users, and {held}", _OWN_DIRECTORY)
            owner.protect(Library(), outer_path(state))
            if not is_private(opened):
                raise MudroomError(f"{name} cannot be closed to other users", _OWN_DIRECTORY)
    except (OSError, CallFailed) as error:
        hint = "set MUDROOM_STATE to a directory you may write to"
        raise MudroomError(f"{name} cannot be used: {getattr(error, 'strerror', None) or error}", hint) from error


def make(path: bytes) -> None:
    """Make a directory, and each missing directory above it. Each inherits the list from above; ``require`` checks the
    state directory's."""
    os.makedirs(outer_path(path), exist_ok=True)


def read(path: bytes, limit: int) -> bytes | None:
    """Return at most ``limit`` bytes from a file that only the user can access, or None if there is no such file."""
    try:
        descriptor = disk.open_path(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(disk.fstat(descriptor).st_mode) or not is_private(descriptor):
            return None
        return os.read(descriptor, limit)
    except (OSError, CallFailed):
        return None
    finally:
        os.close(descriptor)
