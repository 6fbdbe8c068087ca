"""The key by which a browser is known again after a restart: a file of 32 random bytes in the state directory.

It is read anew whenever it is needed: another key there ends every login at once, whatever runs.
"""

from __future__ import annotations

import os
import secrets
import stat

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.policy import private

_SIZE = 32


class CookieKey:
    def __init__(self, directory: bytes) -> None:
        """``directory``: made if there is none, when a key is. Nothing is looked at before."""
        self._directory, self._path = directory, directory + b"/key"

    def key(self) -> bytes | None:
        """The key there is now. None: there is none that nobody else can know or have chosen."""
        found = private.read(self._path, _SIZE + 1)
        return found if found is not None and len(found) == _SIZE else None

    def prepare(self) -> None:
        """Make one if there is none. Raises MudroomError."""
        if self.key() is None:
            self.renew()

    def renew(self) -> None:
        """Another key: nobody is logged in any more. Raises MudroomError."""
        write_own(self._path, secrets.token_bytes(_SIZE))


def write_own(path: bytes, data: bytes) -> None:
    """All of it or nothing, for this user alone, in a directory that is his alone. Raises MudroomError."""
    directory = os.path.dirname(path)
    beside = path + b"." + secrets.token_hex(4).encode()
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        info = os.lstat(directory)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise MudroomError(f"others may write in {show(directory)}, or it is theirs", "remove it")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.rename(beside, path)
    except OSError as error:
        raise MudroomError(f"{show(path)} cannot be written: {error.strerror}") from error
