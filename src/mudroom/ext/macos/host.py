"""Survey a Mac for a sandbox: system directories, toolchains, and the places that level 0 hides. The counterpart to
``sandbox/host/host.py`` and ``sandbox/host/around.py``, with the same result types."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.confinement.spec import Bind, HostView
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.credential_stores import store_places
from mudroom.sandbox.host.around import Home, NamedStore, hidden_places
from mudroom.sandbox.host.host import Host, survey_paths

_SYSTEM = (
    b"/usr", b"/bin", b"/sbin", b"/opt", b"/nix", b"/private/etc",
    b"/System/Library",  # frameworks, and with Preboot and Cryptexes dyld's shared cache
    b"/System/Volumes/Preboot/Cryptexes", b"/System/Cryptexes", b"/System/iOSSupport",
    b"/Library/Apple", b"/Library/Developer", b"/Library/Frameworks", b"/Library/Java", b"/Library/Perl",
    b"/Library/Ruby", b"/Library/Python", b"/Library/Fonts",
    b"/Library/Preferences/Logging",  # every program reads its logging settings
    b"/Applications/Xcode.app",
    b"/private/var/db/timezone", b"/private/var/db/dyld", b"/private/var/db/oah",  # oah: Rosetta's translations
    b"/private/var/db/xcode_select_link", b"/private/var/select", b"/private/var/db/mds/messages",
)  # fmt: skip
"""Not /Library and /private/var as a whole: keychains, preferences with tokens, other users' temporary files."""
_TOOLCHAINS = (b"Library/pnpm", b"Library/Python", b"Library/Application Support/fnm", b".orbstack/bin", b".swiftly")
_PATH_MAX = 1024
"""MAXPATHLEN in sys/syslimits.h."""
_MOST_LINKS = 32
"""MAXSYMLINKS in sys/param.h."""


def true_path(path: bytes) -> bytes:
    """Return the path as Seatbelt compares it: links followed, in the stored case and normal form. By fcntl(2),
    F_GETPATH, where available; otherwise, or if no file is there, by realpath(3)."""
    command = getattr(fcntl, "F_GETPATH", None)
    if command is None:
        return os.path.realpath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        above, _slash, name = os.path.realpath(path).rpartition(b"/")
        return true_path(above) + b"/" + name if above and name else path
    with Descriptor(descriptor):
        buffer: bytes = fcntl.fcntl(descriptor, command, bytes(_PATH_MAX))
        return buffer.rstrip(b"\0")


def link_nodes(paths: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield (target, path) for each symbolic link on the way along the absolute paths; ``path`` is the link's own
    entry. A loop ends at the kernel's limit (MAXSYMLINKS in sys/param.h), a path at its first missing entry."""
    told: set[bytes] = set()
    for path in paths:
        at, left, links = b"", path.split(b"/"), 0
        while left and links < _MOST_LINKS:
            name = left.pop(0)
            if name in (b"", b"."):
                continue
            entry = at.rpartition(b"/")[0] if name == b".." else at + b"/" + name
            try:
                target = os.readlink(entry) if name != b".." and os.path.islink(entry) else None
            except OSError:
                break
            if target is None:
                at = entry
                continue
            links += 1
            if entry not in told:
                told.add(entry)
                yield target, (true_path(at) + b"/" + name if at else entry)
            at, left = (b"" if target.startswith(b"/") else at), [*target.split(b"/"), *left]


def enclosing_app(path: bytes) -> bytes:
    """Return the application that a developer directory (xcode-select(1)) is part of, else the path: Xcode's programs
    load libraries from beside it."""
    app, is_inside, _rest = path.partition(b".app/Contents/Developer")
    return app + b".app" if is_inside else path


def survey_mac(home: bytes, search: Sequence[bytes]) -> Host:
    """Survey the Mac as ``host.survey`` does: ``home`` is the user's home directory, ``search`` the PATH directories.
    ``Host.links`` are the symbolic links that lead to shown paths."""
    system = tuple(Bind(enclosing_app(true_path(path)), path) for path in _SYSTEM if os.path.exists(path))
    home_binds, credentials, files = survey_paths(home, search, [bind.path for bind in system], _TOOLCHAINS)
    return Host(
        links=tuple(link_nodes((*search, *(bind.path for bind in (*system, *home_binds))))),
        system=system,
        home=tuple(Bind(true_path(bind.source), bind.path) for bind in home_binds),
        devices=(),
        credentials=credentials._replace(masks=tuple(map(true_path, credentials.masks))),
        files=files,
        uid_map=b"",
        gid_map=b"",
        deny_setgroups=False,
        as_root=os.geteuid() == 0,
        landlock_abi=0,
        machine=os.uname().machine,
    )


def look_around_mac(
    home: Home,
    opened: NamedStore,
    _environ: object,
    _toolchains: Iterable[Bind],
    masks: Iterable[bytes],
    *,
    namespaces: bool,
) -> tuple[HostView, tuple[tuple[bytes, bytes], ...]]:
    """Do as ``around.look_around``. The home needs no stand-in, because no mounts are made in it. Missing stores are
    hidden as well: a rule needs no file."""
    assert not namespaces
    hidden = hidden_places(home.path, home.state, (*opened.named, *home.shown))
    absent = [path for path in absent_places(home.path) if path not in hidden and path not in opened.named]
    around = HostView(
        hidden=tuple(dict.fromkeys(map(true_path, (*hidden, *absent, *home.replaced)))),
        covered=tuple(map(true_path, masks)),
        shown=tuple(Bind(true_path(path), path) for path in home.shown if os.path.exists(path)),
        live=tuple(Bind(true_path(bind.source), bind.path, bind.writable) for bind in opened.live),
        abstract=opened.abstract,
    )
    return around, ()


def absent_places(home: bytes) -> list[bytes]:
    """Return the credential stores that do not exist."""
    return [home + b"/" + place for place in store_places() if not os.path.lexists(home + b"/" + place)]
