"""What a Mac has that a sandbox shows: system directories, toolchains; and what level 0 hides. As
``sandbox/host/host.py`` and ``sandbox/host/around.py`` do for Linux, in the same values.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence

from mudroom.core.confinement.spec import Bind, HostView
from mudroom.sandbox.host.around import Home, NamedStore, hidden_places
from mudroom.sandbox.host.host import Host, survey_paths

_SYSTEM = (
    b"/usr", b"/bin", b"/sbin", b"/opt", b"/nix", b"/private/etc",
    b"/System/Library",  # frameworks, and with Preboot and Cryptexes the shared cache of dyld
    b"/System/Volumes/Preboot/Cryptexes", b"/System/Cryptexes", b"/System/iOSSupport",
    b"/Library/Apple", b"/Library/Developer", b"/Library/Frameworks", b"/Library/Java", b"/Library/Perl",
    b"/Library/Ruby", b"/Library/Python", b"/Library/Fonts",
    b"/Library/Preferences/Logging",  # every program asks how it is to log
    b"/Applications/Xcode.app",
    b"/private/var/db/timezone", b"/private/var/db/dyld", b"/private/var/db/oah",  # oah: what Rosetta has translated
    b"/private/var/db/xcode_select_link", b"/private/var/select", b"/private/var/db/mds/messages",
)  # fmt: skip
"""Not /Library and /private/var as wholes: keychains, preferences with tokens, other users' temporary files."""
_TOOLCHAINS = (b"Library/pnpm", b"Library/Python", b"Library/Application Support/fnm", b".orbstack/bin", b".swiftly")
_PATH_MAX = 1024
"""MAXPATHLEN of sys/syslimits.h."""


def true_path(path: bytes) -> bytes:
    """The path as the file system has it: links followed, in the case and normal form in which it is stored, which is
    how Seatbelt compares it. By fcntl(2), F_GETPATH, where there is that; else, or where nothing is, realpath(3)."""
    command = getattr(fcntl, "F_GETPATH", None)
    if command is None:
        return os.path.realpath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        above, _slash, name = os.path.realpath(path).rpartition(b"/")
        return true_path(above) + b"/" + name if above and name else path
    try:
        found: bytes = fcntl.fcntl(descriptor, command, bytes(_PATH_MAX))
        return found.rstrip(b"\0")
    finally:
        os.close(descriptor)


def survey_mac(home: bytes, search: Sequence[bytes]) -> Host:
    """As ``host.survey``: ``home`` is the user's home directory, ``search`` the directories of PATH, real paths."""
    system = tuple(Bind(true_path(path), path) for path in _SYSTEM if os.path.exists(path))
    home_binds, masks, files = survey_paths(home, search, [bind.path for bind in system], _TOOLCHAINS)
    return Host(
        links=(),
        system=system,
        home=tuple(Bind(true_path(bind.source), bind.path) for bind in home_binds),
        devices=(),
        masks=tuple(map(true_path, masks)),
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
    """As ``around.look_around``; nothing has to stand in for the home, as nothing is mounted in it. What is not there
    yet is hidden as well: a rule needs no file."""
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
    """Credential stores that are not there."""
    from mudroom.core.agent.credential_stores import places

    return [home + b"/" + place for place in places() if not os.path.lexists(home + b"/" + place)]
