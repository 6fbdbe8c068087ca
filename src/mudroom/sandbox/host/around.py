"""This host as a command at level 0 sees it: hidden files, reachable sockets, and the home's stand-in.

The home is read-only, but the vault's caches must appear in it, and credentials must not. No entry may be made in the
real home. A mount over a file is no lasting cover: it disappears as soon as the host puts another file in its place
(vfs_rename in fs/namei.c detaches the mounts there). So a directory with a missing or hidden entry is replaced by a
stand-in, into which its other entries are bound by name: hidden entries never exist there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mudroom.core.confinement.spec import Bind, HostView
from mudroom.core.tree.credential_stores import store_places
from mudroom.core.tree.path import is_below
from mudroom.core.tree.secret import secret_test
from mudroom.sandbox.host.host import is_secret_file
from mudroom.typing import NamedTuple, Protocol

_SOCKETS = b"/proc/net/unix"
_MOUNTS = b"/proc/self/mountinfo"
_SYSTEM_PLACES = (b"/usr", b"/etc", b"/dev", b"/proc", b"/sys", b"/run")
_PRIVATE = (b"/tmp", b"/var/tmp")
_DAEMONS = (
    b"/run/docker.sock", b"/run/podman/podman.sock", b"/run/containerd/containerd.sock", b"/run/dbus/system_bus_socket",
    b"/run/crio/crio.sock", b"/run/snapd.socket", b"/var/lib/lxd/unix.socket", b"/run/libvirt/libvirt-sock",
)  # fmt: skip
"""Also looked up by name: /proc lists only sockets in this network namespace, and these may listen in another."""


def private_places(environ: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """Return the directories that are private to the command: temporary directories and the user session's runtime
    directory."""
    runtime = environ.get(b"XDG_RUNTIME_DIR") or b"/run/user/%d" % os.getuid()
    directories = [
        os.path.realpath(path) for path in (*_PRIVATE, runtime) if path.startswith(b"/") and os.path.isdir(path)
    ]
    return tuple(path for path in dict.fromkeys(directories) if path.count(b"/") > 1 or path == b"/tmp")


def host_sockets(spared: Iterable[bytes], private: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the host's reachable unix sockets that have a path (unix(7), /proc/net/unix), except spared ones and those
    in private directories."""
    with open(_SOCKETS, "rb") as lines:
        listed = {fields[7] for fields in (line.split(None, 7) for line in lines) if len(fields) == 8}
    paths = {os.path.realpath(path.rstrip(b"\n")) for path in (*listed, *_DAEMONS) if path.startswith(b"/")}
    spare = set(spared)
    return tuple(
        path
        for path in sorted(paths)
        if not any(is_below(path, place) for place in (*private, *spare)) and is_socket(path)
    )


def hidden_places(home: bytes, state: bytes, shown: Collection[bytes]) -> tuple[bytes, ...]:
    """Return the existing paths to hide: mudroom's state, credential stores that were not named, and files with a
    credential's name at the top of the home and its hidden directories."""
    candidates = [home + b"/" + place for place in store_places()]
    candidates += _by_name(home)
    for entry in _entries(home):
        if entry.name.startswith(b".") and entry.is_dir(follow_symlinks=False):
            candidates += _by_name(entry.path)
    hidden = [path for path in candidates if not any(is_below(path, shown_path) for shown_path in shown)]
    real = [path for path in map(os.path.realpath, hidden) if _can_be_hidden(path, home)]
    return tuple(dict.fromkeys(path for path in (state, *hidden, *real) if os.path.lexists(path)))


def second_places(table: bytes, path: bytes, *, parts: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the other paths at which a file or directory is mounted, by a /proc/self/mountinfo
    (proc_pid_mountinfo(5)), each with the path that is the same at the place known; with ``parts`` also the mounts of
    what lies below it. A later mount may cover one."""
    mounts = [_mount_of(line) for line in table.splitlines()]
    own = max((mount for mount in mounts if is_below(path, mount[2])), key=lambda mount: len(mount[2]), default=None)
    if own is None:
        return
    inside = _join(own[1], path[len(own[2].rstrip(b"/")) :])
    for device, root, point in mounts:
        if device == own[0] and is_below(inside, root):
            yield _join(point, inside[len(root.rstrip(b"/")) :]), path
        elif device == own[0] and parts and is_below(root, inside):
            yield point, _join(path, root[len(inside) :])


def _mount_of(line: bytes) -> tuple[bytes, bytes, bytes]:
    _number, _parent, device, root, point = line.split(b" ", 5)[:5]
    for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        root, point = root.replace(code, character), point.replace(code, character)
    return device, root, point


def _join(above: bytes, tail: bytes) -> bytes:
    return above.rstrip(b"/") + b"/" + tail.lstrip(b"/") if tail.strip(b"/") else above


def _at_second_places(hidden: Iterable[bytes], whole: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return where else this host has mounted the hidden places, or directories (``whole``) with some in them."""
    with open(_MOUNTS, "rb") as stream:
        table = stream.read()
    places = [place for path in whole for place in second_places(table, path, parts=False)]
    places += [place for path in hidden for place in second_places(table, os.path.realpath(path), parts=True)]
    others = sorted({place for place, known in places if place != known and _is_same(place, known)})
    return tuple(place for place in others if not any(place != one and is_below(place, one) for one in others))


def _is_same(one: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False  # covered by another mount, or closed to this user and so to the command


def _can_be_hidden(real: bytes, home: bytes) -> bool:
    """Return whether a store's real path is hidden, too. System directories are not, nor a directory that contains the
    home."""
    if is_below(real, home):
        return real != home
    return not any(is_below(place, real) or is_below(real, place) for place in (home, *_SYSTEM_PLACES))


def _by_name(directory: bytes) -> list[bytes]:
    return [
        entry.path
        for entry in _entries(directory)
        if (test := secret_test(entry.name))
        and not entry.is_dir()
        and is_secret_file(os.path.realpath(entry.path), test)
    ]


def _entries(directory: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(directory) as scan:
            return sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return []  # gone, or not readable


class HomeStandIn(NamedTuple):
    """A stand-in for a directory: see the top of this file."""

    directories: tuple[tuple[bytes, int], ...]
    links: tuple[tuple[bytes, bytes], ...]
    shown: tuple[Bind, ...]


def build_stand_in(home: bytes, hidden: Collection[bytes], needed: Collection[bytes]) -> HomeStandIn:
    """Return a stand-in for ``home`` without ``hidden``, with a place for each mount in ``needed``."""
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
    return HomeStandIn(tuple(directories), tuple(links), tuple(shown))


def _is_touched(directory: bytes, hidden: Collection[bytes], needed: Collection[bytes]) -> bool:
    """Return whether an entry below is hidden, or needs a mount at a path that is no directory."""
    if any(path != directory and is_below(path, directory) for path in hidden):
        return True
    return any(path != directory and is_below(path, directory) and not os.path.isdir(path) for path in needed)


class Home(NamedTuple):
    """The home directory as level 0 needs it."""

    path: bytes
    state: bytes
    """mudroom's own directory, always hidden."""
    project: bytes
    needed: tuple[bytes, ...] = ()
    """Paths in the home that will be mounted on."""
    shown: tuple[bytes, ...] = ()
    """Files in the home that may be read, whatever they hold."""
    replaced: tuple[bytes, ...] = ()
    """Files in the home that have other contents for the command."""


class NamedStore(Protocol):
    """The open credential stores (``Opened``, or an object made from it)."""

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
    """Return a command's surroundings, and the empty files on which single files are mounted. ``masks``: files that no
    command may read."""
    hidden = (*hidden_places(home.path, home.state, (*opened.named, *home.shown)), *home.replaced)
    hidden += _at_second_places(hidden, (home.path, home.project))
    if not namespaces:
        return HostView(shown=readable((*hidden, *masks, b"/dev/pts")), live=opened.live, abstract=opened.abstract), ()
    private = private_places(environ)
    mounted = [bind.path for bind in opened.live if is_below(bind.path, home.path)]
    directories = {bind.path for bind in opened.live if os.path.isdir(bind.source)}
    stand_in = build_stand_in(home.path, frozenset((*hidden, *mounted)), home.needed)
    outside = [path for path in hidden if not any(is_below(path, place) for place in (home.path, *private))]
    around = HostView(
        directories=(
            *stand_in.directories,
            *((path, 0o700) for path in mounted if path in directories),
            *((home.project, 0o700) for path in hidden if is_below(home.project, path)),
        ),
        links=stand_in.links,
        shown=(
            *stand_in.shown,
            *_in_private(toolchains, private, home.path),
            *(Bind(os.path.realpath(path), path) for path in home.shown if _is_inside(path, hidden)),
        ),
        private=private,
        hidden=tuple(path for path in outside if os.path.isdir(path)),
        covered=(*host_sockets(opened.named, private), *(path for path in outside if not os.path.isdir(path)), *masks),
        live=opened.live,
        abstract=opened.abstract,
    )
    files = (path for path in mounted if path not in directories and not _is_within(path, directories))
    return around, tuple((path, b"") for path in files)


def _is_within(path: bytes, directories: Iterable[bytes]) -> bool:
    return any(is_below(path, directory) for directory in directories)


def _is_inside(path: bytes, directories: Iterable[bytes]) -> bool:
    return os.path.exists(path) and any(path != directory and is_below(path, directory) for directory in directories)


def _in_private(binds: Iterable[Bind], private: Sequence[bytes], home: bytes) -> Iterator[Bind]:
    """Yield the level 1 binds that a private directory would hide, except those in the home, which its stand-in
    shows."""
    for bind in binds:
        if any(is_below(bind.path, directory) for directory in private) and not is_below(bind.path, home):
            yield bind


def readable(hidden: Collection[bytes]) -> tuple[Bind, ...]:
    """Return binds for the whole host except ``hidden``, where files cannot be covered: the entries around each hidden
    path are bound by name. Symlinks are left out: a right granted at a symlink applies to its target."""
    binds: list[Bind] = []

    def visit(directory: bytes) -> None:
        for entry in _entries(directory):
            if entry.is_symlink() or entry.path in hidden:
                continue
            if any(is_below(path, entry.path) for path in hidden):
                visit(entry.path)
            else:
                binds.append(Bind(entry.path, entry.path))

    visit(b"/")
    return tuple(binds)


def is_socket(path: bytes) -> bool:
    """Return whether a reachable socket is at the path."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False  # gone, or not reachable
