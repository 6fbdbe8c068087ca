"""A pair of programs that try to meet: the giver has a secret, and the taker succeeds when it prints that secret."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

BITS = 16
"""Length of the word that a signal carries."""
LOWER = "lower"
"""A directory of the project, with files that no fork has changed."""

PLACES: dict[str, str] = {
    "home": "{home}", "cache": "{home}/.cache", "npm": "{home}/.npm", "cargo_registry": "{home}/.cargo/registry",
    "cargo_git": "{home}/.cargo/git", "go": "{home}/go/pkg", "gradle": "{home}/.gradle/caches",
    "maven": "{home}/.m2/repository", "nuget": "{home}/.nuget/packages", "yarn": "{home}/.yarn/berry",
    "pnpm": "{home}/.local/share/pnpm/store", "config": "{home}/.config", "local": "{home}/.local",
    "tmp": "/tmp", "var_tmp": "/var/tmp", "shm": "/dev/shm", "run": "/run", "run_user": "/run/user/{uid}",
    "mqueue": "/dev/mqueue", "dev": "/dev", "cgroup": "/sys/fs/cgroup", "project": "{project}",
    "lower": "{project}/lower", "mudroom": "{project}/.mudroom", "beside": "{root}/beside", "state": "{state}",
    "store": "{home}/.oddtool",
    "own_home": "{their_home}", "own_tmp": "{their_tmp}", "own_project": "{their_project}",
}  # fmt: skip
"""Directories in which two programs could meet, by name. The last three are the giver's own, as it sees them;
``store`` is a tool's directory of credentials."""


class World(NamedTuple):
    """What both know of the host and of each other: all of it but the secret."""

    role: str
    key: str
    """Part of every name of this pair, unique."""
    secret: str
    """The giver's; empty for the taker."""
    places: dict[str, str]
    held: dict[str, int]
    """Descriptors that the giver gives, by name; for the taker, those that it was given."""
    state: str
    proxy: int
    """Port of the gate's proxy; 0: there is none."""

    def name(self, kind: str) -> str:
        return f"{self.key}-{kind}"

    @property
    def word(self) -> int:
        """The secret in bits: never zero."""
        return word(self.secret)


def word(secret: str) -> int:
    return int.from_bytes(hashlib.sha256(secret.encode()).digest()[:2], "big") | 1


RIGHT = "right"
"""Beside the places that the taker is told: by what it knows the word when it sees it (``digest``)."""
EXPECTED, TRIED = "expected", "tried"
"""Beside them: the pairs that are known to meet, and those that the taker tries."""
PATIENCE = 30.0
"""Seconds for what is certain to come: the machine may be busy."""


def digest(word: int) -> str:
    return hashlib.sha256(b"%d" % word).hexdigest()


def is_word(value: int, right: str) -> bool:
    return digest(value) == right


Part = Callable[[World], Generator[None, None, Any]]
"""Yields while it waits. The taker's returns what it was told, a number for a word; an OSError is a refusal."""


class Pair(NamedTuple):
    name: str
    group: str
    tries: str
    source: str
    give: Part
    take: Part
    control: str
    """Why it does not succeed where nothing confines; empty: it does."""


PAIRS: dict[str, Pair] = {}


def register(name: str, group: str, tries: str, give: Part, take: Part, *, source: str = "", control: str = "") -> None:
    """Add a row to the table. Raise ValueError if the name is taken."""
    if name in PAIRS:
        raise ValueError(f"two pairs are called {name}")
    PAIRS[name] = Pair(name, group, tries, source, give, take, control)


_directories: dict[str, int] = {}


def directory(path: str) -> int:
    """Return a descriptor of a directory: a path through it is short enough for a socket's address (unix(7): 108). It
    stays open until another directory is at the path."""
    known = _directories.get(path)
    if known is not None:
        if os.path.samestat(os.fstat(known), os.stat(path)):
            return known
        os.close(_directories.pop(path))
    return _directories.setdefault(path, os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def below(place: int, name: str) -> str:
    return f"/proc/self/fd/{place}/{name}"


def socket_of(kind: str) -> socket.socket:
    return socket.socket(socket.AF_UNIX, getattr(socket, f"SOCK_{kind.upper()}") | socket.SOCK_NONBLOCK)


def read_from(descriptor: int) -> str:
    """Return the start of what a descriptor leads to."""
    return os.pread(descriptor, 200, 0).decode(errors="replace")
