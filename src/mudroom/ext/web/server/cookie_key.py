"""The key that signs login cookies: 32 random bytes in the state directory, so that logins outlive a restart.

The file is read whenever the key is needed: replacing it ends every login at once, in a running server, too.
"""

from __future__ import annotations

import os
import secrets

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk, private_file

_SIZE = 32


class CookieKey:
    def __init__(self, directory: bytes) -> None:
        """``directory``: made together with the key. The constructor does not access it."""
        self._directory, self._path = directory, directory + b"/key"

    def key(self) -> bytes | None:
        """Return the key, or None if there is none or another user could know or have written it."""
        data = private_file.read(self._path, _SIZE + 1)
        return data if data is not None and len(data) == _SIZE else None

    def prepare(self) -> None:
        """Make a key if there is none. Raise MudroomError."""
        if self.key() is None:
            self.renew()

    def renew(self) -> None:
        """Replace the key, which ends all logins. Raise MudroomError."""
        write_own(self._path, secrets.token_bytes(_SIZE))


def write_own(path: bytes, data: bytes) -> None:
    """Write a file atomically, readable by this user alone, in a directory that only this user can write to. Raise
    MudroomError."""
    directory = os.path.dirname(path)
    temporary = path + b"." + secrets.token_hex(4).encode()
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        if not private_file.is_own_directory(directory):
            hint = f"rm -r {show(directory)} removes it; it is made again"
            raise MudroomError(f"{show(directory)} belongs to another user, or others may write in it", hint)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with open(disk.open_path(temporary, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            disk.rename_path(temporary, path)
    except OSError as error:
        raise MudroomError(f"{show(path)} cannot be written: {error.strerror}") from error
