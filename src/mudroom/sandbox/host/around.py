"""What of this host a command at level 0 has around it: what is hidden, which sockets there are, what stands in for the
home.

The home is read-only, but caches of the vault must appear in it, and credentials must not. Nothing may be made in the
real one, and a cover over a file is gone as soon as the host puts another file in its place (vfs_rename in fs/namei.c
detaches what is mounted there). So a directory in which something is missing or hidden is made anew, and what else is
in it is shown there, name by name: what is hidden was never there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from mudroom.core.agent.credential_stores import places
from mudroom.core.confinement.credential_file import is_credential
from mudroom.core.confinement.spec import Bind, HostView
from mudroom.core.tree.path import is_below
from mudroom.sandbox.host.credential_opening import is_socket

_SOCKETS = b"/proc/net/unix"
_GPU = (b"/dev/dri", b"/dev/kfd", b"/dev/nvidia-caps", b"/dev/dxg")
_GPU_PREFIXES = (b"nvidia",)
_NEEDED = (b"/usr", b"/etc", b"/dev", b"/proc", b"/sys", b"/run")
_PRIVATE = (b"/tmp", b"/var/tmp")
_DAEMONS = (
    b"/run/docker.sock", b"/run/podman/podman.sock", b"/run/containerd/containerd.sock", b"/run/dbus/system_bus_socket",
    b"/run/crio/crio.sock", b"/run/snapd.socket", b"/var/lib/lxd/unix.socket", b"/run/libvirt/libvirt-sock",
)  # fmt: skip
"""Looked for by name, too: they may listen in another network namespace than ours, where /proc does not list them."""


def gpu_devices() -> tuple[bytes, ...]:
    """Device nodes of graphics and compute cards."""
    found = [path for path in _GPU if os.path.exists(path)]
    found += [b"/dev/" + name for name in sorted(os.listdir(b"/dev")) if name.startswith(_GPU_PREFIXES)]
    return tuple(path for path in dict.fromkeys(found) if not stat.S_ISREG(os.stat(path).st_mode))


def private_places(environ: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """Directories in whose place the command has its own: for temporary files, and that of the user's session."""
    runtime = environ.get(b"XDG_RUNTIME_DIR") or b"/run/user/%d" % os.getuid()
    found = [os.path.realpath(path) for path in (*_PRIVATE, runtime) if path.startswith(b"/") and os.path.isdir(path)]
    return tuple(path for path in dict.fromkeys(found) if path.count(b"/") > 1 or path == b"/tmp")


def host_sockets(spared: Iterable[bytes], private: Sequence[bytes]) -> tuple[bytes, ...]:
    """Unix sockets of the host that have a path (unix(7), /proc/net/unix) and can be reached, but for those spared and
    those in private places."""
    with open(_SOCKETS, "rb") as lines:
        listed = {fields[7] for fields in (line.split(None, 7) for line in lines) if len(fields) == 8}
    paths = {os.path.realpath(path.rstrip(b"\n")) for path in (*listed, *_DAEMONS) if path.startswith(b"/")}
    spare = set(spared)
    return tuple(
        path for path in sorted(paths) if not any(is_below(path, one) for one in (*private, *spare)) and is_socket(path)
    )


def hidden_places(home: bytes, state: bytes, shown: Collection[bytes]) -> tuple[bytes, ...]:
    """What exists and is not to be seen: mudroom's state, stores that were not named, and files at the top of the home
    and of its hidden directories that are credentials by their names."""
    found = [home + b"/" + place for place in places()]
    found += _by_name(home)
    for entry in _entries(home):
        if entry.name.startswith(b".") and entry.is_dir(follow_symlinks=False):
            found += _by_name(entry.path)
    wanted = [path for path in found if not any(is_below(path, one) for one in shown)]
    real = [path for path in map(os.path.realpath, wanted) if _can_be_hidden(path, home)]
    return tuple(dict.fromkeys(path for path in (state, *wanted, *real) if os.path.lexists(path)))


def _can_be_hidden(real: bytes, home: bytes) -> bool:
    """What a link in the place of a store leads to is hidden, too, but not the system, nor what the home lies in."""
    if is_below(real, home):
        return real != home
    return not any(is_below(one, real) or is_below(real, one) for one in (home, *_NEEDED))


def _by_name(directory: bytes) -> list[bytes]:
    return [entry.path for entry in _entries(directory) if is_credential(entry.name) and not entry.is_dir()]


def _entries(directory: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(directory) as scan:
            return sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return []  # gone, or not for us


class Furniture(NamedTuple):
    """What stands in for a directory: see the head of this file."""

    directories: tuple[tuple[bytes, int], ...]
    links: tuple[tuple[bytes, bytes], ...]
    shown: tuple[Bind, ...]


def furnish(home: bytes, hidden: Collection[bytes], needed: Collection[bytes]) -> Furniture:
    """A stand-in for ``home`` without ``hidden``, in which ``needed`` can be mounted."""
    directories: list[tuple[bytes, int]] = []
    links: list[tuple[bytes, bytes]] = []
    shown: list[Bind] = []

    def visit(directory: bytes) -> None:
        for entry in _entries(directory):
            path = entry.path
            if path in hidden:
                continue
            if entry.is_symlink():
                links.append((os.readlink(path), path))
            elif entry.is_dir() and _is_touched(path, hidden, needed):
                directories.append((path, stat.S_IMODE(entry.stat().st_mode)))
                visit(path)
            else:
                shown.append(Bind(path, path))

    visit(home)
    return Furniture(tuple(directories), tuple(links), tuple(shown))


def _is_touched(directory: bytes, hidden: Collection[bytes], needed: Collection[bytes]) -> bool:
    """Whether something below is hidden, or has to be mounted where nothing is."""
    if any(path != directory and is_below(path, directory) for path in hidden):
        return True
    return any(path != directory and is_below(path, directory) and not os.path.isdir(path) for path in needed)


class Home(NamedTuple):
    """What is to be known of the home for level 0."""

    path: bytes
    state: bytes
    """mudroom's own, which nobody sees."""
    project: bytes
    needed: tuple[bytes, ...] = ()
    """Where something is going to be mounted in it."""
    shown: tuple[bytes, ...] = ()
    """Files of it that may be read, whatever they hold."""
    replaced: tuple[bytes, ...] = ()
    """Files of it that the command has another content of."""


class NamedStore(Protocol):
    """The stores that are open (``Opened``, or what is made of it)."""

    @property
    def live(self) -> tuple[Bind, ...]: ...
    @property
    def named(self) -> tuple[bytes, ...]: ...
    @property
    def abstract(self) -> bool: ...


def look_around(
    home: Home,
    opened: NamedStore,
    environ: Mapping[bytes, bytes],
    toolchains: Iterable[Bind],
    masks: Iterable[bytes],
    *,
    namespaces: bool,
) -> tuple[HostView, tuple[tuple[bytes, bytes], ...]]:
    """``masks``: files that nobody may read. Also gives the empty files on which single files are mounted."""
    hidden = (*hidden_places(home.path, home.state, (*opened.named, *home.shown)), *home.replaced)
    if not namespaces:
        return HostView(shown=readable((*hidden, *masks, b"/dev/pts")), live=opened.live, abstract=opened.abstract), ()
    private = private_places(environ)
    mounted = [bind.path for bind in opened.live if is_below(bind.path, home.path)]
    furniture = furnish(home.path, frozenset((*hidden, *mounted)), home.needed)
    outside = [path for path in hidden if not any(is_below(path, one) for one in (home.path, *private))]
    around = HostView(
        directories=(
            *furniture.directories,
            *((path, 0o700) for path in mounted if os.path.isdir(path)),
            *((home.project, 0o700) for path in hidden if is_below(home.project, path)),
        ),
        links=furniture.links,
        shown=(
            *furniture.shown,
            *_in_private(toolchains, private, home.path),
            *(Bind(os.path.realpath(path), path) for path in home.shown if _is_inside(path, hidden)),
        ),
        private=private,
        hidden=tuple(path for path in outside if os.path.isdir(path)),
        covered=(*host_sockets(opened.named, private), *(path for path in outside if not os.path.isdir(path)), *masks),
        live=opened.live,
        abstract=opened.abstract,
    )
    return around, tuple((path, b"") for path in mounted if not os.path.isdir(path))


def _is_inside(path: bytes, directories: Iterable[bytes]) -> bool:
    return os.path.exists(path) and any(path != one and is_below(path, one) for one in directories)


def _in_private(binds: Iterable[Bind], private: Sequence[bytes], home: bytes) -> Iterator[Bind]:
    """Of what is shown at level 1 the part that a private place would hide; the home shows its own."""
    for bind in binds:
        if any(is_below(bind.path, one) for one in private) and not is_below(bind.path, home):
            yield bind


def readable(hidden: Collection[bytes]) -> tuple[Bind, ...]:
    """Where nothing can be covered: all of the host but what is hidden, name by name around that. Links are left out:
    whoever grants something at a link grants it where that leads."""
    found: list[Bind] = []

    def visit(directory: bytes) -> None:
        for entry in _entries(directory):
            if entry.is_symlink() or entry.path in hidden:
                continue
            if any(is_below(path, entry.path) for path in hidden):
                visit(entry.path)
            else:
                found.append(Bind(entry.path, entry.path))

    visit(b"/")
    return tuple(found)
