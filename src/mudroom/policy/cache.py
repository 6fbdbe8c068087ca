"""The settings of a project as they were made last, so that most commands read no YAML and try no examples.

Rules of this file: what is kept is believed only if nothing that it was made from has changed: each file's lstat(2),
those that were not there included, and the program itself. What was changed so shortly before that the clock of the
file system may not tell the next change is not kept. Whatever is odd about a snapshot, the files are read instead. What
could be read differently without any of them changing (``run.read`` follows links) is never kept.
"""

from __future__ import annotations

import marshal
import os
import stat
from collections.abc import Iterable
from typing import Any

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LevelPolicy
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import LeftOut, Loaded, Settings
from mudroom.policy import private

_LIMIT = 16 << 20
_KNOWN = {
    one.__name__: one for one in (ClassRule, CommandPolicy, CommandRule, LeftOut, LevelPolicy, Limits, Role, Settings)
}
_SOURCES = (
    *(
        "policy/cache.py",
        "policy/yaml.py",
        "policy/combine.py",
        "policy/parse.py",
        "policy/command_rules.py",
        "policy/command_answers.py",
        "policy/settings_table.py",
    ),
    *(
        "policy/trust.py",
        "core/command/program/classification.py",
        "core/network/host_rules.py",
        "core/command/policy.py",
        "core/network/preset.py",
    ),
)
"""Of the program: whoever works on it is not to find what it did before."""

Stamp = tuple[int, ...] | int


def place(state: bytes, project: bytes) -> bytes:
    from _blake2 import blake2b

    return state + b"/compiled/" + blake2b(project, digest_size=16).hexdigest().encode()


def key_of(project: bytes, config: bytes, *, trusts_all: bool) -> tuple[Any, ...]:
    """What else the settings depend on."""
    here = os.path.dirname(os.path.dirname(__file__))
    program = tuple(os.stat(os.path.join(here, name)).st_mtime_ns for name in _SOURCES)
    fields = tuple((name, one._fields) for name, one in _KNOWN.items())
    return __version__, program, fields, project, config, trusts_all, os.geteuid()


def load(path: bytes, key: tuple[Any, ...]) -> Loaded | None:
    """None if there is no snapshot, or none that holds."""
    data = _read(path)
    if data is None:
        return None
    try:
        found_key, stamps, body = marshal.loads(data)
        if found_key != key or any(stamp(one) != before for one, before in stamps):
            return None
        settings, left_out, why = body
        files = tuple(one for one, _stamp in stamps)
        return Loaded(_made(settings), _made(left_out), why, (), files)
    except (ValueError, TypeError, EOFError, LookupError):
        return None


def store(
    path: bytes, key: tuple[Any, ...], loaded: Loaded, stamps: Iterable[tuple[bytes, Stamp]], looked: int
) -> None:
    """``stamps``: of all files that it was made from. ``looked``: when that was begun; if one of them has changed
    since, or just before, nothing is kept. A snapshot that cannot be written is no harm."""
    from mudroom.stage.stamp import is_settled

    found = list(stamps)
    settled = all(is_settled(one[2], looked) for _path, one in found if isinstance(one, tuple))
    if loaded.settings.read or not settled:
        return
    body = (_flat(loaded.settings), _flat(loaded.left_out), loaded.why)
    data = marshal.dumps((key, found, body))
    beside = path + b".%d" % os.getpid()
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600), "wb") as stream:
            stream.write(_checked(data))
        os.rename(beside, path)
    except OSError:
        return


def stamp(path: bytes) -> Stamp:
    try:
        info = os.lstat(path)
    except OSError as error:
        return error.errno or 0
    if stat.S_ISDIR(info.st_mode):  # what is in it has stamps of its own
        return info.st_dev, info.st_ino, 0, 0, info.st_mode, info.st_uid
    return info.st_dev, info.st_ino, info.st_ctime_ns, info.st_size, info.st_mode, info.st_uid


def _read(path: bytes) -> bytes | None:
    data = private.read(path, _LIMIT)
    if data is None:
        return None  # what is cut off there has another sum
    return data[_SUM:] if data == _checked(data[_SUM:]) else None


_SUM = 16


def _checked(data: bytes) -> bytes:
    """With a checksum in front: marshal is not made for what is damaged."""
    from _blake2 import blake2b

    return blake2b(data, digest_size=_SUM).digest() + data


def _flat(value: Any) -> Any:
    """As marshal can have it: of a class of ours a list with its name first."""
    if not isinstance(value, tuple):
        return value
    fields = [_flat(one) for one in value]
    return tuple(fields) if type(value) is tuple else [type(value).__name__, *fields]


def _made(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_made, value))
    if isinstance(value, list):
        return _class(value[0])(*map(_made, value[1:]))
    return value


def _class(name: str) -> Any:
    if name == "HostRule":
        from mudroom.core.network.host_rules import HostRule

        return HostRule
    return _KNOWN[name]
