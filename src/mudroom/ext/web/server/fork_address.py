"""Addresses of forks: ``http://FORK--PROJECT.localhost:PORT/``, at the port of ``mudroom serve``.

``http://3000.FORK--PROJECT.localhost:PORT/`` is port 3000 of a fork's processes. Without a number the address leads to
the port that was first opened there, and while that is not served, to the lowest. Names below ``localhost`` lead to
this machine (RFC 6761, 6.3).

Fork and project are one label, so that each fork is a site of its own: ``localhost`` is a public suffix by the default
rule (https://publicsuffix.org/list/), and no page can set a cookie above its site (RFC 6265, 5.3). The address
``FORK.PROJECT.localhost`` is easier to type, and leads there; nothing of a fork is ever served at it.

A name that is a label already is its own: lower case, letters, digits and single hyphens. Any other has its hash at the
end, and so has a label that looks as if it had one: two names share a label only if their hashes are equal. Pure, but
for the vaults that are handed in.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from mudroom.session.upkeep import Vault
from mudroom.vault.forks.endpoint import ports_of
from mudroom.vault.store.fork import Fork

ZONE = "localhost"
LONGEST = 30
"""Characters in the name of a fork or project: both, and two hyphens, are a label of 63 (RFC 1035, 2.3.4)."""
_NAME = "[a-z0-9]+(?:-[a-z0-9]+)*"
_LABEL = re.compile(_NAME)
_HASHED = re.compile(r".*-[0-9a-f]{8}")
_RESERVED = ("mudroom",)
"""Labels that no project has: ``mudroom.localhost`` is a name for the page."""
_HOST = re.compile(
    rf"(?:([1-9][0-9]{{0,4}})\.)?({_NAME})(\.|--)({_NAME})\.localhost(?::([0-9]{{1,5}}))?".encode(), re.I
)
_LONGEST_HOST = 253


class ForkAddress(NamedTuple):
    """A Host header that names a fork."""

    port: int | None
    """The port inside; None: the fork's first."""
    fork: str
    project: str
    """Labels."""
    served: int
    """The page's port, as the browser sees it."""
    is_typed: bool = False
    """Whether it is ``FORK.PROJECT.localhost``, which leads to the fork's host."""

    @property
    def zone(self) -> str:
        """The host that all ports of the fork have in common."""
        return f"{self.fork}--{self.project}.{ZONE}"

    @property
    def host(self) -> str:
        """The value for the Host header."""
        name = self.zone if self.port is None else f"{self.port}.{self.zone}"
        return name if self.served == 80 else f"{name}:{self.served}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"


def parse_host(value: bytes) -> ForkAddress | None:
    """Return the fork that a Host header names, or None."""
    match = _HOST.fullmatch(value) if len(value) <= _LONGEST_HOST else None
    if match is None:
        return None
    port, fork, between, project, served = match.groups()
    names = fork.decode().lower(), project.decode().lower()
    address = ForkAddress(int(port) if port else None, *names, int(served or 80), between == b".")
    return address if (address.port or 1) < 1 << 16 and 0 < address.served < 1 << 16 else None


def label_of(name: str) -> str:
    """Return a fork's label."""
    if len(name) <= LONGEST and _LABEL.fullmatch(name) and not _HASHED.fullmatch(name) and name != "xn":
        return name  # "xn--" begins another name in a browser (RFC 5890, 2.3.2.1)
    return f"{_plain(name, LONGEST - 9)}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"


def _plain(name: str, longest: int) -> str:
    return re.sub("[^a-z0-9]+", "-", name.lower())[:longest].strip("-")


def long_label(vault: bytes) -> str:
    """Return the label that only this vault has: its directory's name, which ends with a hash of the project's path."""
    name, _hyphen, digest = os.fsdecode(os.path.basename(vault)).rpartition("-")
    return f"{_plain(name, LONGEST - 1 - len(digest))}-{digest}".strip("-")


def short_label(project: bytes) -> str:
    """Return the label of a project's directory name; empty if it has none."""
    label = _plain(os.fsdecode(os.path.basename(project)), LONGEST + 1)
    return "" if label in _RESERVED or len(label) > LONGEST else label


def labelled(vaults: Iterable[Vault], label: str) -> Vault | None:
    """Return the vault with a label, or None. Of several projects whose directories have the same name the oldest has
    the short label; the long one is each project's own."""
    vaults = list(vaults)
    exact = [vault for vault in vaults if long_label(vault.path) == label]
    named = exact or sorted((vault for vault in vaults if short_label(vault.project) == label), key=_age)
    return named[0] if named else None


def project_label(vaults: Iterable[Vault], vault: Vault) -> str:
    """Return the shorter label that leads to this vault."""
    short = short_label(vault.project)
    found = labelled(vaults, short) if short else None
    return short if found is not None and found.path == vault.path else long_label(vault.path)


def _age(vault: Vault) -> tuple[int, bytes]:
    try:
        return os.stat(vault.path + b"/format").st_mtime_ns, vault.path
    except OSError:
        return 1 << 63, vault.path


def first_port(fork: Fork, served: Collection[int]) -> int | None:
    """Return the port that the address without a number leads to; None if none is served."""
    first = ports_of(fork).first
    return first if first in served else min(served, default=None)


def hosts(label: str, fork: Fork, ports: Sequence[int]) -> list[str]:
    """Return the hosts of a fork's ports, in their order, without the page's port; without ports, the fork's own."""
    first, own = first_port(fork, ports), label_of(fork.name)
    numbers = [None if port == first else port for port in ports] if ports else [None]
    return [ForkAddress(number, own, label, 80).host for number in numbers]
