"""CDI files: the device nodes, files and variables that programs need to use a GPU, as ``nvidia-ctk cdi generate`` and
others write them (Container Device Interface, https://github.com/cncf-tags/container-device-interface, SPEC.md).

The files are root's, and trusted as such: each is read by descriptor from a directory that nobody else can write to.
Still only character devices below /dev, regular files and directories that root alone can write to or exchange, and
harmless variables are taken. Hooks are programs of the host, and are never run. What is left out is told.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterator

from mudroom.core.confinement.graphics import GraphicsAccess
from mudroom.core.confinement.spec import Bind
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.stage import disk
from mudroom.typing import Any

DIRECTORIES = (b"/etc/cdi", b"/run/cdi")
"""/var/run is a link to the second one's parent."""
OWNER = 0
LIMIT = 1 << 20
"""Bytes in a file."""
_NODES = (b"/dev/dri", b"/dev/kfd", b"/dev/nvidia-caps", b"/dev/dxg")
_PREFIX = "nvidia"
"""Where device nodes are without such a file."""
_KIND = re.compile(r"[A-Za-z0-9.-]+/gpu")
_PATH = re.compile(rb"(?:/[A-Za-z0-9_.+@-]+)+")
_VARIABLE = re.compile(r"(?!LD_)([A-Z][A-Z0-9_]*)=([!-~]*)")
_LONGEST = 100
"""Characters of a name that is told."""
_PLACES = (b"/usr", b"/lib", b"/lib32", b"/lib64", b"/opt", b"/etc", b"/run", b"/var/lib")
"""Where files may be shown."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def access() -> GraphicsAccess:
    """Return what a command gets that may use the GPUs of this machine."""
    given = described()
    usual = usual_nodes()
    named = tuple(path for path in given.devices if not any(is_below(path, other) for other in usual))
    devices = (*usual, *named)
    if not devices:
        return GraphicsAccess()._replace(notes=(*GraphicsAccess().notes, *given.notes))
    shown = ", ".join(map(show, devices))
    first = f"GPU: not isolated: {shown}, with its memory and its driver, is shared with other programs"
    return given._replace(devices=devices, notes=(first, *given.notes))


def usual_nodes() -> tuple[bytes, ...]:
    """Return the device nodes for graphics and compute cards at their usual paths."""
    names = sorted(name for name in os.listdir("/dev") if name.startswith(_PREFIX))
    paths = dict.fromkeys(
        (*(path for path in _NODES if os.path.exists(path)), *(f"/dev/{name}".encode() for name in names))
    )
    return tuple(path for path in paths if not stat.S_ISREG(os.stat(path).st_mode))


def described() -> GraphicsAccess:
    """Return what the CDI files of this machine give for its GPUs, with notes about what is left out."""
    devices: dict[bytes, None] = {}
    binds: dict[bytes, Bind] = {}
    variables: dict[bytes, bytes] = {}
    notes: dict[str, None] = {}
    for name, text in _files(notes):
        try:
            edits = [
                (_rows(edit, "deviceNodes"), _rows(edit, "mounts"), _rows(edit, "env", str))
                for edit in _edits(_parsed(name, text))
            ]
        except ValueError as error:
            notes[f"{show(name)} is left out: {error}"] = None
            continue
        for nodes, mounts, settings in edits:
            for node in nodes:
                path = _path(node.get("path"))
                why = _no_device(path, _path(node.get("hostPath") or node.get("path")))
                _take(devices, path, None, why, notes)
            for mount in mounts:
                source, path = _path(mount.get("hostPath")), _path(mount.get("containerPath"))
                _take(binds, path, Bind(source, path), _no_file(source, path), notes)
            for setting in settings:
                match = _VARIABLE.fullmatch(setting)
                if match is not None:
                    variables[match[1].encode()] = match[2].encode()
                else:
                    named = show(setting.partition("=")[0][:_LONGEST].encode("utf-8", "surrogateescape"))
                    notes[f"the variable {named} is not set: its name or its value is not permitted"] = None
    return GraphicsAccess(tuple(devices), tuple(binds.values()), tuple(variables.items()), tuple(notes))


def _take(taken: dict[bytes, Any], path: bytes, value: object, why: str, notes: dict[str, None]) -> None:
    if why:
        notes[f"{show(path)} is not shown: {why}"] = None
    else:
        taken[path] = value


def _files(notes: dict[str, None]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each file's path and text; a file of the second directory counts after those of the first."""
    for directory in DIRECTORIES:
        try:
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            notes[f"{show(directory)} is left out: {_reason(error)}"] = None
            continue
        with Descriptor(opened):
            if _is_open(os.fstat(opened)):
                notes[f"{show(directory)} is left out: others than root may write in it"] = None
                continue
            for name in sorted(os.listdir(opened)):
                if name.endswith((".json", ".yaml", ".yml")):
                    path = directory + b"/" + os.fsencode(name)
                    text = _read(opened, name)
                    if text is None:
                        notes[f"{show(path)} is left out: it is not root's own file, or has more than 1 MiB"] = None
                    else:
                        yield path, text


def _read(directory: int, name: str) -> bytes | None:
    try:
        opened = disk.open_at(directory, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(opened, "rb") as stream:
        info = os.fstat(stream.fileno())
        if not stat.S_ISREG(info.st_mode) or _is_open(info) or info.st_size > LIMIT:
            return None
        return stream.read(LIMIT)


def _is_open(info: os.stat_result) -> bool:
    return info.st_uid != OWNER or bool(info.st_mode & _OTHERS)


def _parsed(name: bytes, text: bytes) -> Any:
    """Raise ValueError if it is neither JSON nor YAML."""
    try:
        if name.endswith(b".json"):
            return json.loads(text)
        import yaml

        return yaml.safe_load(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it cannot be read ({type(error).__name__})") from None
    except Exception as error:  # noqa: BLE001 - yaml.YAMLError, which is not imported for JSON
        raise ValueError(f"it cannot be read ({type(error).__name__})") from None


def _edits(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the edits for all GPUs of a file. Raise ValueError if it has another form."""
    if not isinstance(value, dict) or not isinstance(value.get("cdiVersion"), str):
        raise ValueError("it has no cdiVersion")
    if _KIND.fullmatch(str(value.get("kind"))) is None:
        return  # a network card, a certificate store …
    devices = _rows(value, "devices")
    every = [device for device in devices if device.get("name") == "all"]
    for holder in (value, *(every or devices)):
        edit = holder.get("containerEdits")
        if isinstance(edit, dict):
            yield edit


def _rows(holder: dict[str, Any], name: str, kind: type = dict) -> list[Any]:
    rows = holder.get(name) or []
    if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
        raise ValueError(f"{name} is no list of {'objects' if kind is dict else 'texts'}")
    return rows


def _path(value: object) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""


def _is_plain(path: bytes) -> bool:
    return _PATH.fullmatch(path) is not None and posixpath.normpath(path) == path


def _no_device(path: bytes, source: bytes) -> str:
    """Return why a device node is left out; empty if it is not."""
    if path != source:
        return "it has another path on this machine"
    if not _is_plain(path) or not is_below(path, b"/dev") or is_below(path, b"/dev/shm"):
        return "it is no path below /dev"
    try:
        info = _status(path)
    except OSError as error:
        return _reason(error)
    return "" if stat.S_ISCHR(info.st_mode) and info.st_uid == OWNER else "it is no character device of root's"


def _no_file(source: bytes, path: bytes) -> str:
    if not _is_plain(source) or not _is_plain(path) or not any(is_below(path, place) for place in _PLACES):
        return "files are shown only below " + ", ".join(map(show, _PLACES))
    try:
        info = _status(source)
    except OSError as error:
        return _reason(error)
    if stat.S_ISSOCK(info.st_mode):
        return "it is a socket: a command that connects to it can do whatever its server can"
    if source != path and not os.path.lexists(path) and not is_below(path, b"/var/lib"):
        return "this machine has no such path, and no file can be made there"
    is_file = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    return "" if is_file and not _is_open(info) else "it is no file or directory that root alone can write to"


def _status(path: bytes) -> os.stat_result:
    """Return a file's status. No link at its end is followed. Raise OSError, also if others than root can write to a
    directory above: they could exchange the file afterwards."""
    above, _slash, name = path.rpartition(b"/")
    at = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in (*filter(None, os.path.realpath(above).split(b"/")), name):
            info = os.fstat(at)
            is_sticky = info.st_mode & stat.S_ISVTX  # inode(7): only the owner of a file can exchange it
            if info.st_uid not in (0, OWNER) or (info.st_mode & _OTHERS and not is_sticky):
                raise PermissionError(errno.EPERM, "others than root can write to a directory above it")
            below = disk.open_at(at, part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.close(at)
            at = below
        return os.fstat(at)
    finally:
        os.close(at)


def _reason(error: OSError) -> str:
    return (error.strerror or "").lower()
