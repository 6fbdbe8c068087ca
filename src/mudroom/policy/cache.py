"""Cache of a project's settings, so that most commands parse no YAML and try no examples.

Rules of this file:

- An entry is valid only while no source has changed: the lstat(2) result of each file, missing files included, and the
  program itself.
- An entry is not stored if a source changed so recently that the file system's clock might not show the next change.
- If an entry is invalid in any way, the files are read instead.
- Settings that could change while these files stay the same (``run.read`` follows links) are never cached.
"""

from __future__ import annotations

import marshal
import os
import stat
from collections.abc import Iterable

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LevelPolicy
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import LeftOut, Loaded, Settings, StartCommand
from mudroom.errors import MudroomError
from mudroom.stage import disk, private_file
from mudroom.stage.private_directory import make_private, require_private
from mudroom.stage.stamp import is_settled
from mudroom.typing import Any

_LIMIT = 16 << 20
_CLASSES = {
    kind.__name__: kind
    for kind in (ClassRule, CommandPolicy, CommandRule, LeftOut, LevelPolicy, Limits, Role, Settings, StartCommand)
}
_SOURCES = (
    *(
        "policy/cache.py",
        "policy/yaml.py",
        "policy/combine.py",
        "policy/parse.py",
        "policy/command_rules.py",
        "policy/command_answers.py",
        "policy/setting_row.py",
        "policy/setting_type.py",
        "policy/settings_table.py",
    ),
    *(
        "policy/trust.py",
        "core/command/program/classification.py",
        "core/network/fork_rule.py",
        "core/network/fork_host.py",
        "core/network/host_entry.py",
        "core/network/host_rules.py",
        "core/command/policy.py",
        "core/network/preset.py",
        "data/presets.txt",
    ),
)
"""Program files that determine the settings. Their times are in the cache key, so a change during development
invalidates old entries."""

Stamp = tuple[int, ...] | int


def cache_path(state: bytes, project: bytes) -> bytes:
    from _blake2 import blake2b

    return state + b"/compiled/" + blake2b(project, digest_size=16).hexdigest().encode()


def key_of(project: bytes, config: bytes, machine: bytes, *, trusts_all: bool) -> tuple[Any, ...]:
    """Return the inputs other than the policy files that determine the settings, for the cache key."""
    package = os.path.dirname(os.path.dirname(__file__))
    program = tuple(os.stat(os.path.join(package, name)).st_mtime_ns for name in _SOURCES)
    fields = tuple((name, kind._fields) for name, kind in _CLASSES.items())
    return __version__, program, fields, project, config, machine, trusts_all, disk.user()


def load(path: bytes, key: tuple[Any, ...]) -> Loaded | None:
    """Return the settings, or None if there is no valid entry."""
    data = _read(path)
    if data is None:
        return None
    try:
        stored_key, stamps, body = marshal.loads(data)
        if stored_key != key or any(stamp(source) != before for source, before in stamps):
            return None
        settings, left_out, why = body
        files = tuple(source for source, _stamp in stamps)
        return Loaded(_decode(settings), _decode(left_out), why, (), files)
    except (ValueError, TypeError, EOFError, LookupError):
        return None


def store(path: bytes, key: tuple[Any, ...], loaded: Loaded, stamps: Iterable[tuple[bytes, Stamp]], began: int) -> None:
    """Store the settings. ``stamps``: all source files with their stamps. ``began``: the time in nanoseconds before the
    first file was read. Stores no entry if a file has changed since, or just before. Ignores an entry that cannot be
    written."""
    stamp_rows = list(stamps)
    settled = all(is_settled(stamp[2], began) for _path, stamp in stamp_rows if isinstance(stamp, tuple))
    if loaded.settings.read or not settled:
        return
    body = (_encode(loaded.settings), _encode(loaded.left_out), loaded.why)
    data = marshal.dumps((key, stamp_rows, body))
    beside = path + b".%d" % os.getpid()
    try:
        require_private(os.path.dirname(os.path.dirname(path)))
        make_private(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with open(disk.open_path(beside, flags, 0o600), "wb") as stream:
            stream.write(_checked(data))
        disk.rename_path(beside, path)
    except (OSError, MudroomError):  # opening the vault names what is wrong with the state directory
        return


def stamp(path: bytes) -> Stamp:
    try:
        info = disk.stat_at(None, path)
    except OSError as error:
        return error.errno or 0
    if stat.S_ISDIR(info.st_mode):  # the files in it have their own stamps
        return info.st_dev, info.st_ino, 0, 0, info.st_mode, info.st_uid
    return info.st_dev, info.st_ino, info.st_ctime_ns, info.st_size, info.st_mode, info.st_uid


def _read(path: bytes) -> bytes | None:
    data = private_file.read(path, _LIMIT)
    if data is None:
        return None  # a truncated entry has another checksum
    return data[_SUM:] if data == _checked(data[_SUM:]) else None


_SUM = 16


def _checked(data: bytes) -> bytes:
    """Prepend a checksum: marshal must not read damaged data."""
    from _blake2 import blake2b

    return blake2b(data, digest_size=_SUM).digest() + data


def _encode(value: Any) -> Any:
    """Return a value that marshal can store: an instance of a known class becomes a list that starts with the class
    name."""
    if not isinstance(value, tuple):
        return value
    fields = [_encode(field) for field in value]
    return tuple(fields) if type(value) is tuple else [type(value).__name__, *fields]


def _decode(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_decode, value))
    if isinstance(value, list):
        return _class_named(value[0])(*map(_decode, value[1:]))
    return value


def _class_named(name: str) -> Any:
    if name == "HostRule":
        from mudroom.core.network.host_rules import HostRule

        return HostRule
    if name == "ForkRule":
        from mudroom.core.network.fork_rule import ForkRule

        return ForkRule
    if name == "AgentLink":
        from mudroom.core.network.fork_host import AgentLink

        return AgentLink
    return _CLASSES[name]
