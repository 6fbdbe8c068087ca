"""Level 2 in a named image: a ``SandboxSpec`` compiled to a ``Plan`` that is performed in a container of it. Pure.

The root is the image's own, with all that the engine has mounted in it, read-only through every mount. In it

* the staged project at its own path; private /tmp, /run, /var/tmp, /dev and home; caches of the vault;
* hidden: the launcher's runtime, and what of the vault the container sees;
* all of level 1 besides: namespaces, listeners of the gate, Landlock's scopes, the system call filter, no capability.

Nothing can be made in the image, so what has a place outside of the private directories is mounted by the engine, which
makes the places. One that the image makes a link of, leading elsewhere, is refused: what is mounted there would be
somewhere else.
"""

from __future__ import annotations

from mudroom.core.confinement.plan import NAMESPACES, Plan, Step
from mudroom.core.confinement.spec import Bind, Overlay, SandboxSpec
from mudroom.core.tree.path import is_below
from mudroom.sandbox.linux.plan import (
    NOEXEC,
    NOSUID,
    RDONLY,
    READ_ONLY,
    STANDARD_LINKS,
    TMPFS_LIMIT,
    WRITABLE,
    ahead,
    confinement,
    own_directory,
    view_step,
)

OURS = (b"/.mudroom",)
"""Where the container has what the launcher needs: ``runtime.PLACE``; a test says so. The door beside it needs no
cover: it is gone as soon as the launcher has come through it, and what is left in that place is a directory without a
name, in which nothing can be."""
CPU = (b"/sys/devices/system/cpu", b"/sys/devices/system/node")
"""What programs look up in /sys: how many threads make sense."""
_EMPTY = ((b"mode", b"0555"), (b"size", b"4k"))


def compile_imaged(spec: SandboxSpec, machine: str, hidden: tuple[bytes, ...] = ()) -> Plan:
    """The steps for this spec in an image's root, and what the engine has to mount there. ``hidden``: directories of
    the host that the container sees and the command does not. Raises ValueError for an unknown machine or too many
    layers."""
    assert spec.namespaces, "without namespaces the image's root is the command's as it is"
    flags = sum(bit for name, bit in NAMESPACES.items() if name != "net" or spec.network != "open")
    shared, before, last = _shared(spec, hidden), ahead(spec), confinement(spec, machine)
    own = [
        *(("cover", mask[1:]) for mask in spec.masks),
        view_step(spec),
        *own_directory(spec),
        ("view", spec.project[1:]),
        ("terminal", b"dev/pts/ptmx"),
        *((("hand_over",),) if spec.network == "gate" else ()),
        ("pivot",),
        ("cwd", spec.cwd),
    ]
    maps = (spec.uid_map, spec.gid_map, spec.deny_setgroups)
    steps = (*shared, *before, *own, *last)
    return Plan(
        flags, maps, steps, len(shared), len(before), len(last), mounts=_mounts(spec), memory=tuple(_memory(spec))
    )


def _mounts(spec: SandboxSpec) -> tuple[tuple[bytes, bytes, bool], ...]:
    """Of two binds in one place the later one counts."""
    outside = {bind.path: bind for bind in spec.binds if not _is_inside(bind.path, spec)}
    return tuple((bind.source, bind.path, bind.writable) for bind in outside.values())


def _memory(spec: SandboxSpec) -> list[bytes]:
    """The project's own place, unless the container has it anyway as what is staged."""
    base = spec.view.lowers[-1] if isinstance(spec.view, Overlay) else b""
    return [spec.home, *((spec.project,) if base != spec.project else ())]


def _is_inside(path: bytes, spec: SandboxSpec) -> bool:
    """In what is the command's own, where anything can be made."""
    return any(is_below(path, own) for own in (*private(spec.home), spec.project))


def _shared(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[Step]:
    placed = sorted(_placed(spec, hidden), key=lambda place: place[0])
    steps: list[Step] = [("private",), ("image", spec.scratch, READ_ONLY)]
    steps += [("beneath", path[1:]) for path in places(spec, hidden)]
    steps += [("tmpfs", b"dev", ((b"mode", b"0755"), (b"size", b"64k")), NOSUID | NOEXEC)]
    steps += [("bind", device, device[1:], NOSUID | NOEXEC, False) for device in spec.devices]
    steps += [("tmpfs", b"dev/shm", TMPFS_LIMIT, WRITABLE)]
    steps += [("directory", b"dev/pts", 0o755), *(("symlink", target, path) for target, path in STANDARD_LINKS)]
    steps += [("tmpfs", b"sys", ((b"mode", b"0755"), (b"size", b"64k")), NOSUID | NOEXEC)]
    steps += [("bind", path, path[1:], READ_ONLY | NOEXEC, True) for path in CPU]
    steps += [step for _path, step in placed]
    steps += [("file", path[1:], content, 0o600) for path, content in spec.files]
    steps += [("seal", name, NOSUID | NOEXEC | RDONLY) for name in (b"dev", b"sys")]
    return [*steps, ("drop_bounding_set",)]


def _placed(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[tuple[bytes, Step]]:
    placed: list[tuple[bytes, Step]] = [(path, _private(path, spec.home)) for path in private(spec.home)]
    placed += [(bind.path, _bind(bind)) for bind in spec.binds if _is_placed(bind, spec)]
    return placed + [(path, ("tmpfs", path[1:], _EMPTY, READ_ONLY | NOEXEC)) for path in _hidden(spec, hidden)]


def _is_placed(bind: Bind, spec: SandboxSpec) -> bool:
    """What the engine mounted read-only stays as it is; what is writable was made read-only with the rest."""
    if is_below(bind.path, spec.project):
        return False
    return bind.writable or _is_inside(bind.path, spec)


def private(home: bytes) -> tuple[bytes, ...]:
    """Directories in whose place the command has empty ones of its own."""
    return (b"/tmp", b"/run", b"/var/tmp", home)


def _private(path: bytes, home: bytes) -> Step:
    limit = {b"/run": ((b"mode", b"0755"), (b"size", b"64m")), home: ((b"mode", b"0700"), (b"size", b"50%"))}
    return ("tmpfs", path[1:], limit.get(path, TMPFS_LIMIT), WRITABLE)


def _bind(bind: Bind) -> Step:
    return ("bind", bind.source, bind.path[1:], WRITABLE if bind.writable else READ_ONLY, False)


def _hidden(spec: SandboxSpec, hidden: tuple[bytes, ...]) -> list[bytes]:
    """What lies in a private directory is not to be seen anyway."""
    return [path for path in (*OURS, *hidden) if not _lies_in_private(path, spec.home)]


def places(spec: SandboxSpec, hidden: tuple[bytes, ...] = ()) -> list[bytes]:
    """Where something is mounted in the image's root itself: each has to be there, and to be no link."""
    wanted = [b"/dev", b"/proc", b"/sys", *private(spec.home), spec.project, *_hidden(spec, hidden)]
    wanted += [path for _source, path, _writable in _mounts(spec)]
    return [path for path in sorted(set(wanted)) if not _lies_in_private(path, spec.home)]


def _lies_in_private(path: bytes, home: bytes) -> bool:
    return any(path != own and is_below(path, own) for own in private(home))
