"""A project that appears to commands at another path than its files' (docs/decisions/0062).

A worker has another machine's project files in its own directory, the *source* (``Vault.source``). Its commands see
them at the path that they have on their origin (``Vault.project``), with a private home at the home's path there. Both
paths need not exist on this machine, and may belong to another user here: no file on this machine is read at them.

The paths are in a sandbox's new root, so only a mount namespace can show them. They must not lie where the sandbox has
its own or the system's files: no directory can be made there, and the view would hide these files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.path import is_below, show
from mudroom.errors import Unsupported, UsageError
from mudroom.sandbox.host.host import without
from mudroom.stage import disk

_SYSTEM = tuple(
    b"/.mudroom /bin /boot /dev /etc /gnu /lib /lib32 /lib64 /libx32 /nix /opt /proc /sbin /sys /usr "
    b"/var/cache/fontconfig /var/lib/ca-certificates /var/lib/texmf /var/run".split()
)
"""The host's or the kernel's paths, wherever a sandbox shows them: ``sandbox/host/host.py``, the link /var/run, and the
launcher's files in a container."""
_SHARED = ((b"/opt", b"/opt"), (b"/usr/src", b"/usr"), (b"/usr/local/src", b"/usr"))
"""System directories in which machines have projects (FHS 3.0, 3.13, 4.12 and 4.9), and the bind that shows each. For a
project inside, the bind is replaced by binds of the entries around the project."""
_PRIVATE = (b"/tmp", b"/run", b"/var/tmp", b"/dev/shm")
"""Each command's own."""
_NAME_LIMIT, _PATH_LIMIT = 255, 4000
"""NAME_MAX, and room below PATH_MAX for the files (limits.h)."""
_HINT = "pass the path that the project has on the machine it comes from"
NO_HOME = b"/nonexistent"
"""A home without files (FHS 3.0 does not name it; Debian's base-passwd has it for accounts without a home)."""


def require_appearance(appears_at: bytes, home: bytes, state: bytes) -> None:
    """Raise UsageError if a project cannot appear at ``appears_at``, with a private home at ``home``."""
    _require_place(appears_at, "a project", _HINT)
    _require_place(home, "the private home", "pass the home that belongs to the path of the project")
    if is_below(home, appears_at):
        raise UsageError(f"a project cannot appear at {show(appears_at)}: the home {show(home)} is in it", _HINT)
    if is_below(state, appears_at):
        raise UsageError(f"a project cannot appear at {show(appears_at)}: mudroom's own state is in it", _HINT)


def _require_place(path: bytes, what: str, hint: str) -> None:
    reason = _unfit(path)
    if reason:
        raise UsageError(f"{what} cannot appear at {show(path)}: {reason}", hint)


def _unfit(path: bytes) -> str:
    """Return why a sandbox can have no directory at a path; an empty string if it can."""
    if b"\0" in path:
        return "a path cannot hold a NUL"
    if not path.startswith(b"/"):
        return "it is not absolute"
    if path == b"/" or path != os.path.normpath(path) or path.startswith(b"//"):
        return "it is no plain path of a directory" if path != b"/" else "it is the root directory"
    if len(path) > _PATH_LIMIT or any(len(name) > _NAME_LIMIT for name in path.split(b"/")):
        return "it is too long"
    if any(path != place and is_below(path, place) for place, _shown in _SHARED):
        return ""
    for place in _SYSTEM:
        if is_below(path, place) and not is_below(path, b"/dev/shm"):
            return f"{show(place)} is the system's"
    for place in (*_SYSTEM, *_PRIVATE):
        if is_below(place, path):
            return f"it would hide {show(place)}"
    return ""


def with_room(path: bytes, binds: Iterable[Bind], what: str = "a project") -> list[Bind]:
    """Return the binds with room for a project (or ``what``) that appears inside a bind, where no directory can be
    made: that bind is split into the entries around ``path``. Raise UsageError if it is not a system bind."""
    roomy = list[Bind]()
    for bind in binds:
        if not is_below(path, bind.path):
            roomy.append(bind)
        elif any(bind == (shown, shown, False) and is_below(path, place) for place, shown in _SHARED):
            roomy += (part for part in without((bind,), (path,)) if os.path.exists(part.source))
        else:
            raise UsageError(
                f"{what} cannot appear at {show(path)}: commands are shown {show(bind.path)} of this machine",
                "leave it out of PATH or of read in the policy, on this machine",
            )
    return roomy


def needs_namespaces(found: str) -> Unsupported:
    """Return the error for a command without a mount namespace."""
    hint = "mudroom doctor says what this machine permits; without it, open the project at its own path"
    return Unsupported("a project that appears at another path", "a mount namespace (level 1 or 2)", found, hint)


def own_home(home: bytes) -> bytes:
    """Return the home whose toolchains, settings and stores commands are shown: ``home``, or a home without files if
    this machine has another user's directory at that path, which root could read."""
    try:
        info = os.stat(home, follow_symlinks=False)
    except FileNotFoundError:
        return home
    except OSError:
        return NO_HOME
    return home if info.st_uid == disk.user() and os.path.realpath(home) == home else NO_HOME
