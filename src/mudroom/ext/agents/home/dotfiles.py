"""The user's git and shell settings, as an agent's commands see and change them: the fork's own files.

On disk:

    forks/<fork>/dotfiles/files/<name>   the fork's files; a command sees the directory at ``PLACE`` in its home
    forks/<fork>/dotfiles/base           the files as copied from the host, by path: digest and mode, JSON

A command's home has a link to each file, even if the file is missing: a program that replaces its settings by a rename,
as git does, resolves the link first, and a shell that appends to them creates the file. The rules:

1. Git files are copied without their secrets. They land as a whole, unless the user's own hold secrets.
2. Shell files start empty, since the user's own may export keys. The fork's text lands at their end.
3. Sandboxes have written in the directory: every file is opened by descriptor. An entry that is not a regular file
   never lands, and is removed before the next command.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mudroom.core.confinement.credential_file import git_identity, holds_secret
from mudroom.core.confinement.spec import Bind
from mudroom.core.system.closing import Descriptor
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.home_change import HomeChange, HomeFile, home_changes
from mudroom.ext.agents.home.staged_file import digest_of, give, load_base, open_own, remove, save_base
from mudroom.stage import disk
from mudroom.stage.beneath import entries, open_file
from mudroom.typing import Literal, NamedTuple
from mudroom.vault.store.fork import Fork

PLACE = b".local/state/mudroom-dotfiles"
"""Relative to the home, like all paths here."""
MOST_BYTES = 1 << 20
"""Bytes in a file; a larger one is neither copied nor listed."""

Kind = Literal["git", "shell"]
SETTINGS: Mapping[bytes, Kind] = {
    b".gitconfig": "git",
    b".config/git/config": "git",
    b".profile": "shell",
    b".bashrc": "shell",
    b".bash_profile": "shell",
    b".bash_login": "shell",
    b".bash_logout": "shell",
    b".bash_aliases": "shell",
    b".zshenv": "shell",
    b".zprofile": "shell",
    b".zshrc": "shell",
    b".zlogin": "shell",
    b".config/fish/config.fish": "shell",
    b".inputrc": "shell",
}
_NAMES = {path: path.lstrip(b".").replace(b"/", b"-") for path in SETTINGS}
"""By path: the name in the fork's directory."""


_NO_FILE = HomeFile("", 0)
"""For an entry that is not a regular file, is too large, or cannot be read."""


class SettingsView(NamedTuple):
    """How commands see the files."""

    bind: Bind
    links: tuple[tuple[bytes, bytes], ...]
    """(target, absolute path)."""


class Dotfiles:
    """Used by the holder of the fork's lock. ``home``: the user's, a real path."""

    name = "home"
    places: tuple[bytes, ...] = ()
    keys: Mapping[bytes, tuple[str, ...]] = {}

    def __init__(self, fork: Fork, home: bytes) -> None:
        self._home, self._place = home, _place_of(fork)
        self._files = self._place + b"/files"

    def prepare(self, *, mounts: bool, owner: tuple[int, int] | None = None) -> SettingsView:
        """Bring the files up to date: the host's are copied again where the fork has not changed its own. Return how
        commands see them: at ``PLACE``, or without ``mounts`` where they are. ``owner``: as in AgentHome."""
        os.makedirs(self._place, mode=0o700, exist_ok=True)  # no sandbox writes here, only below
        base, host, staged = load_base(self._place), self._host(), self._staged()
        with self._opened() as files:
            disk.set_mode_of(files, 0o700)  # a command may have removed its own permissions
            for path, name in _NAMES.items():
                if staged.get(path) not in (base.get(path), _NO_FILE):
                    continue
                if host.get(path) != staged.get(path) or path not in staged:
                    remove(files, name)
                    base.pop(path, None)
                if path in host and host[path] != staged.get(path):
                    _write(files, name, self.host_content(path) or b"", host[path].mode)
                    base[path] = host[path]
        if not disk.user():
            give(self._files, *(owner or (0, 0)))
        save_base(self._place, base)
        target = self._home + b"/" + PLACE if mounts else self._files
        links = tuple((target + b"/" + name, self._home + b"/" + path) for path, name in _NAMES.items())
        return SettingsView(Bind(self._files, target, writable=True), links)

    def changes(self) -> list[HomeChange]:
        """Return the fork's changes by path, without those that have landed."""
        base, staged, host = load_base(self._place), self._staged(), self._host()
        changes = []
        for change in home_changes(base, staged, host, ()):
            mine = self._read_host(change.path)
            if SETTINGS[change.path] == "shell":
                if (mine or b"").endswith(self.content(change.path) or b"?"):
                    continue
                change = change._replace(change="changed" if mine is not None else "new", conflict=False)
            changes.append(change._replace(mode=self._mode(change)))
        return changes

    def content(self, path: bytes) -> bytes | None:
        """Return the fork's file content, or None if there is none, or too much."""
        if not os.path.isdir(self._files):
            return None
        with self._opened() as files:
            return _content(files, _NAMES[path])

    def host_content(self, path: bytes) -> bytes | None:
        """Return the host's file content as commands see it, or None if it is not shown."""
        content = self._read_host(path) if SETTINGS[path] == "git" else None
        return git_identity(content) if content is not None and holds_secret(content) else content

    def host_path(self, path: bytes) -> bytes:
        return self._home + b"/" + path

    def landed(self, change: HomeChange, content: bytes) -> bytes:
        """Return the new content for the host's file. Raise ValueError with the reason if it cannot land there."""
        mine = self._read_host(change.path) or b""
        if SETTINGS[change.path] == "shell":
            return mine + (b"\n" if mine and not mine.endswith(b"\n") else b"") + content
        if holds_secret(mine):
            raise ValueError("yours holds secrets, which the fork does not have: change it yourself")
        return content

    # --- parts ---

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with Descriptor(open_own(self._files)) as files:
            yield files

    def _host(self) -> dict[bytes, HomeFile]:
        contents = {path: self.host_content(path) for path in SETTINGS}
        return {path: _file_of(content) for path, content in contents.items() if content is not None}

    def _read_host(self, path: bytes) -> bytes | None:
        """Return the user's own file content. Links are followed, as by the programs that read it."""
        try:
            with open(
                disk.open_path(self.host_path(path), os.O_RDONLY | disk.O_NONBLOCK | disk.O_CLOEXEC), "rb"
            ) as stream:
                content = stream.read(MOST_BYTES + 1)
        except OSError:
            return None  # missing, not a file, or not readable: as for the programs that read it
        return content if len(content) <= MOST_BYTES else None

    def _staged(self) -> dict[bytes, HomeFile]:
        if not os.path.isdir(self._files):
            return {}
        with self._opened() as files:
            listed = entries(files)
            contents = {path: _content(files, name) for path, name in _NAMES.items() if name in listed}
        return {path: _file_of(content) if content is not None else _NO_FILE for path, content in contents.items()}

    def _mode(self, change: HomeChange) -> int:
        """Return the mode with which the file lands: the host file's, or a new file's."""
        try:
            return os.stat(self.host_path(change.path)).st_mode & 0o777
        except OSError:
            return 0 if change.change == "removed" else 0o644


def dotfiles_of(fork: Fork, home: bytes) -> list[Dotfiles]:
    """Return the settings that a fork's commands have had, or an empty list."""
    return [Dotfiles(fork, home)] if os.path.isdir(_place_of(fork)) else []


def _place_of(fork: Fork) -> bytes:
    return fork.path + b"/dotfiles"


def _file_of(content: bytes) -> HomeFile:
    return HomeFile(digest_of(content), 0o600)


def _content(files: int, name: bytes) -> bytes | None:
    """Return a regular file's content, or None if it is not regular, too large, or cannot be read."""
    try:
        with open(open_file(files, name), "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(MOST_BYTES + 1) if is_file else None
    except (OSError, MudroomError):
        return None  # an entry that a sandbox has put in the way
    return content if content is not None and len(content) <= MOST_BYTES else None


def _write(files: int, name: bytes, content: bytes, mode: int) -> None:
    remove(files, name)
    descriptor = disk.open_at(
        files, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC, mode
    )
    with open(descriptor, "wb") as stream:
        stream.write(content)
