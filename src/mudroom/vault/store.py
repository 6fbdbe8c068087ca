"""The vault: what mudroom keeps about one project, outside of it.

    <state>/vaults/<name>-<hash of the path>/
        project         the project's path, as bytes
        format          "1"
        lock            flock(2), and who holds it
        journal.db      the journal (SQLite)
        scratch/        stays empty: sandboxes mount their root over it
        cache/          the caches of package managers, shared by all commands of this project
        forks/<name>/   upper/ and work/ (overlay) or copy/ (copy view), and record (vault/record.py)
        applies/<uN>/   one apply: its plan and its slots (vault/apply.py)
        applies/pending the name of the apply that is going on, or was when mudroom was killed
        trash/          on its way out; emptied when there is time

docs/FORMAT.md says what of this a reader may rely on.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.vault.lock import Lock

if TYPE_CHECKING:
    from mudroom.vault.journal import Journal

FORMAT = b"1"
_DIRECTORIES = (b"scratch", b"cache", b"forks", b"applies", b"trash")


class Fork(NamedTuple):
    name: str
    path: bytes

    @property
    def record_path(self) -> bytes:
        return self.path + b"/record"

    @property
    def is_copy(self) -> bool:
        return os.path.isdir(self.path + b"/copy")


class Vault:
    def __init__(self, path: bytes, project: bytes) -> None:
        self.path = path
        self.project = project
        self.lock = Lock(path + b"/lock")
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        """Loaded at first use: SQLite and OpenSSL's hashes cost more to import than a command to start."""
        if self._journal is None:
            from mudroom.vault.journal import Journal

            self._journal = Journal(self.path + b"/journal.db")
        return self._journal

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    @property
    def scratch(self) -> bytes:
        return self.path + b"/scratch"

    @property
    def cache(self) -> bytes:
        return self.path + b"/cache"

    # --- forks ---

    def new_fork(self, name: str) -> Fork:
        """An empty fork. Raises UsageError if there is one of that name."""
        fork = Fork(name, self.path + b"/forks/" + _fork_directory(name))
        try:
            os.mkdir(fork.path, 0o700)
        except FileExistsError:
            raise UsageError(f"there is a fork named {name} already", "choose another name, or discard it") from None
        return fork

    def fork(self, name: str) -> Fork:
        fork = Fork(name, self.path + b"/forks/" + _fork_directory(name))
        if not os.path.isdir(fork.path):
            raise UsageError(f"there is no fork named {name}", "mudroom ls shows the forks of this project")
        return fork

    def forks(self) -> list[Fork]:
        """Oldest first."""
        with os.scandir(self.path + b"/forks") as scan:
            found = [(item.stat().st_ctime_ns, item.name) for item in scan]
        return [Fork(os.fsdecode(name), self.path + b"/forks/" + name) for _time, name in sorted(found)]

    def discard(self, fork: Fork) -> None:
        """The fork is gone when this returns; its bytes are freed in the same breath if they are few."""
        place = self._trash(fork.path)
        if place is not None:
            self.empty_trash()

    def _trash(self, path: bytes) -> bytes | None:
        for number in range(1_000_000):
            place = self.path + b"/trash/%d" % number
            if not os.path.lexists(place):
                os.rename(path, place)
                return place
        raise MudroomError("the vault's trash is full")

    def empty_trash(self) -> None:
        from mudroom.stage.overlay import remove_tree

        for name in os.listdir(self.path + b"/trash"):
            remove_tree(self.path + b"/trash/" + name)

    # --- applies ---

    def applies(self) -> list[bytes]:
        """The directories of all applies, oldest first."""
        names = [name for name in os.listdir(self.path + b"/applies") if name[:1] == b"u" and name[1:].isdigit()]
        return [self.path + b"/applies/" + name for name in sorted(names, key=lambda name: int(name[1:]))]

    def has_unfinished(self) -> bool:
        """Whether a killed mudroom has left an apply or an undo in the middle (``ApplyDirectory.begin``)."""
        return os.path.exists(self.path + b"/applies/pending")

    def new_apply(self) -> bytes:
        before = self.applies()
        number = int(os.path.basename(before[-1])[1:]) + 1 if before else 1
        path = self.path + b"/applies/u%d" % number
        os.mkdir(path, 0o700)
        return path


def _fork_directory(name: str) -> bytes:
    """A fork's name is the name of its directory, so it must be a plain one."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isascii() or not plain.isalnum() or name.startswith((".", "-")) or len(name) > 64:
        raise UsageError(
            f"{show(os.fsencode(name))!r} cannot be the name of a fork",
            "use up to 64 letters, digits, '-', '_' and '.', starting with a letter or digit",
        )
    return name.encode()


def vault_path(state: bytes, project: bytes) -> bytes:
    """Where the vault of a project is: its name for people, a hash of its path for certain."""
    digest = blake2b(project, digest_size=6).hexdigest().encode()
    readable = bytes(c if chr(c).isalnum() and c < 128 else ord("-") for c in os.path.basename(project))[:40]
    return state + b"/vaults/" + (readable or b"project") + b"-" + digest


def open_vault(state: bytes, project: bytes) -> Vault:
    """The vault of ``project`` (a real path), made if there is none.

    Raises MudroomError if it cannot be made, is somebody else's, or was written by a newer mudroom.
    """
    path = vault_path(state, project)
    try:
        with open(path + b"/format", "rb") as stream:
            found = stream.read().strip()
    except FileNotFoundError:
        return _make_vault(path, project)
    except OSError as error:
        raise MudroomError(f"the vault {os.fsdecode(path)} cannot be read: {error.strerror}") from error
    if found != FORMAT:
        raise MudroomError(
            f"the vault {os.fsdecode(path)} has format {found.decode('ascii', 'replace')}, this mudroom knows 1",
            "upgrade mudroom",
        )
    if os.stat(path).st_uid != os.geteuid():
        raise MudroomError(f"the vault {os.fsdecode(path)} belongs to another user")
    return Vault(path, project)


def _make_vault(path: bytes, project: bytes) -> Vault:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        for name in _DIRECTORIES:
            os.makedirs(path + b"/" + name, mode=0o700, exist_ok=True)
        for name, content in ((b"project", project), (b"format", FORMAT + b"\n")):  # format last: it says "complete"
            with open(path + b"/" + name, "wb") as stream:
                stream.write(content)
    except OSError as error:
        raise MudroomError(
            f"the vault {os.fsdecode(path)} cannot be made: {error.strerror}",
            "set MUDROOM_STATE to a directory you may write to",
        ) from error
    return Vault(path, project)
