"""Level 2 in a named image: compile a ``SandboxSpec`` to a ``Plan`` that is performed in a container from it. Pure.

The root is the image's own, with all mounts that the engine has made in it, read-only through every mount. In it

* writable: the staged project at its own path, a private /tmp, /run, /var/tmp, /dev and home, and the vault's caches;
* hidden: the launcher's runtime, and those parts of the vault that the container sees;
* everything else from level 1: namespaces, the gate's listeners, Landlock's scopes, the system call filter, no
  capability.

No file can be made in the image. So the engine makes every mount outside the private directories, with its mount point.
A mount point that is a symlink in the image is refused: the mount would be somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Overlay, SandboxSpec
from mudroom.core.tree.path import is_below
from mudroom.sandbox.linux.plan import (
    NOEXEC,
    NOSUID,
    RDONLY,
    READ_ONLY,
    WRITABLE,
    bind_step,
    command_steps,
    confinement,
    device_steps,
    inside_caches,
    own_system,
    session_limits,
    tmpfs,
)

OURS = (b"/.mudroom",)
"""Paths at which the container has the launcher's files: ``runtime.PLACE``; a test compares the two. The door beside it
needs no cover: it is removed as soon as the launcher has connected through it, and an unlinked directory, in which no
file can be made, remains there."""
CPU = (b"/sys/devices/system/cpu", b"/sys/devices/system/node")
"""Files that programs look up in /sys, to choose a number of threads."""
_EMPTY = ((b"mode", b"0555"), (b"size", b"4k"))


def compile_imaged(spec: SandboxSpec, machine: str, hidden: tuple[bytes, ...] = ()) -> Plan:
    """Compile a spec to the steps in an image's root, with the mounts for the engine. ``hidden`` are host directories
    that the container sees and the command does not. Raise ValueError for an unknown machine or too many layers."""
    assert spec.namespaces, "without namespaces the image's root is the command's as it is"
    flags = sum(bit for name, bit in NAMESPACES.items() if name != "net" or spec.network != "open")
    shared, before, last = _shared(spec, hidden), _ahead(spec), confinement(spec, machine)
    own = [*command_steps(spec, before), ("pivot",), ("cwd", spec.cwd)]
    maps = (spec.uid_map, spec.gid_map, spec.deny_setgroups)
    steps = (*shared, *before, *own, *last)
    return Plan(
        flags, maps, steps, len(shared), len(before), len(last), mounts=_mounts(spec), memory=tuple(_memory(spec))
    )


def _mounts(spec: SandboxSpec) -> tuple[tuple[bytes, bytes, bool], ...]:
    """Return the engine's mounts. If two binds have the same path, the later counts."""
    outside = {bind.path: bind for bind in spec.binds if not _is_inside(bind.path, spec)}
    return tuple((bind.source, bind.path, bind.writable) for bind in outside.values())


def _memory(spec: SandboxSpec) -> list[bytes]:
    """Return the directories that need a mount in memory: the home, and the project's path unless the container has it
    anyway as a part of the staged view."""
    base = spec.view.lowers[-1] if isinstance(spec.view, Overlay) else b""
    return [spec.home, *((spec.project,) if base != spec.project else ())]


def _is_inside(path: bytes, spec: SandboxSpec) -> bool:
    """Return whether a path is in one of the command's own directories, where mount points can be made."""
    return any(is_below(path, own) for own in (*private(spec.home), spec.project))


def _shared(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[Step]:
    placed = _sorted(place for place in _placed(spec, hidden) if not _is_private(place[0], spec))
    steps: list[Step] = [*session_limits(spec), ("private",), ("image", spec.scratch, READ_ONLY)]
    steps += [("beneath", path[1:]) for path in places(spec, hidden)]
    steps += device_steps(spec)
    steps += [("tmpfs", b"sys", ((b"mode", b"0755"), (b"size", b"64k")), NOSUID | NOEXEC)]
    steps += [("bind", path, path[1:], READ_ONLY | NOEXEC, True) for path in CPU]
    steps += placed
    steps += [("seal", name, NOSUID | NOEXEC | RDONLY) for name in (b"dev", b"sys")]
    return [*steps, ("drop_bounding_set",)]


def _ahead(spec: SandboxSpec) -> list[Step]:
    """Return the steps that each command performs for itself but that do not depend on the command."""
    placed = [place for place in _placed(spec, ()) if _is_private(place[0], spec)]
    steps = _sorted([*placed, (b"/dev/shm", tmpfs(b"/dev/shm", spec.tmpfs.other))])
    steps += [("file", path[1:], content, 0o600) for path, content in spec.files]
    steps += [("symlink", target, path[1:]) for target, path in spec.home_links]
    return [*steps, *own_system(spec)]


def _sorted(placed: Iterable[tuple[bytes, Step]]) -> list[Step]:
    """Return the steps by path: a parent is mounted before its children."""
    return [step for _path, step in sorted(placed, key=lambda place: place[0])]


def _is_private(path: bytes, spec: SandboxSpec) -> bool:
    return any(is_below(path, own) for own in private(spec.home))


def _placed(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[tuple[bytes, Step]]:
    placed: list[tuple[bytes, Step]] = [(path, _private(path, spec)) for path in private(spec.home)]
    placed += [(bind.path, bind_step(bind, spec.binds)) for bind in spec.binds if _is_placed(bind, spec)]
    return placed + [(path, ("tmpfs", path[1:], _EMPTY, READ_ONLY | NOEXEC)) for path in _hidden(spec, hidden)]


def _is_placed(bind: Bind, spec: SandboxSpec) -> bool:
    """Return whether a step has to bind it. The engine's read-only mounts stay as they are; a writable mount was made
    read-only with the rest."""
    if is_below(bind.path, spec.project) or bind in inside_caches(spec):
        return False
    return bind.writable or _is_inside(bind.path, spec)


def private(home: bytes) -> tuple[bytes, ...]:
    """Return the directories that are private to the command and start empty."""
    return (b"/tmp", b"/run", b"/var/tmp", home)


def _private(path: bytes, spec: SandboxSpec) -> Step:
    if path == b"/run":
        return ("tmpfs", path[1:], ((b"mode", b"0755"), (b"size", b"64m")), WRITABLE)
    if path == spec.home:
        return tmpfs(path, spec.tmpfs.other, b"0700")
    return tmpfs(path, spec.tmpfs.tmp if path == b"/tmp" else spec.tmpfs.other)


def _hidden(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[bytes]:
    """Return the hidden paths, without those in private directories, which are invisible anyway."""
    return [path for path in (*OURS, *hidden) if not _lies_in_private(path, spec.home)]


def places(spec: SandboxSpec, hidden: tuple[bytes, ...] = ()) -> list[bytes]:
    """Return the paths in the image's root that are mounted upon: each has to exist, and may not be a symlink."""
    paths = [b"/dev", b"/proc", b"/sys", *private(spec.home), spec.project, *_hidden(spec, hidden)]
    paths += [path for _source, path, _writable in _mounts(spec)]
    return [path for path in sorted(set(paths)) if not _lies_in_private(path, spec.home)]


def _lies_in_private(path: bytes, home: bytes) -> bool:
    return any(path != own and is_below(path, own) for own in private(home))
