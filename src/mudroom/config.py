"""Where things are, and what the user has set. Beside ``cli/`` the only file that looks at the environment.

``.mudroom/policy.yaml`` in the project is read by the host only; a sandbox may read it too but cannot change it.
Whatever is wrong in it is an error that names the file, the line and the key: a setting that is ignored in silence
is a protection that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.level import LEVELS, REFUSE
from mudroom.core.limit import parse_size, show_size
from mudroom.core.path import show
from mudroom.core.settings import Settings
from mudroom.document import compose, host_rules, inspect_rules, items, line_at, plain, texts, unknown
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from yaml.nodes import Node

    from mudroom.core.card import AgentCard
    from mudroom.core.hosts import Action, HostRule

POLICY = b".mudroom/policy.yaml"


class Places(NamedTuple):
    home: bytes
    state: bytes


def environment() -> Mapping[bytes, bytes]:
    """The environment of this process, for a library call that was not given one."""
    return os.environb


def places(environ: Mapping[bytes, bytes]) -> Places:
    """The home directory and mudroom's state directory (MUDROOM_STATE, else XDG_STATE_HOME/mudroom)."""
    home = environ.get(b"HOME") or _home_of_user()
    if not home.startswith(b"/"):
        raise UsageError(f"HOME is not an absolute path: {show(home)}")
    home = os.path.realpath(home)
    if home == b"/":
        raise UsageError("the home directory is /, which no sandbox can make private", "set HOME to another directory")
    xdg = environ.get(b"XDG_STATE_HOME", b"")
    if not xdg.startswith(b"/"):  # the XDG Base Directory Specification: a relative path is to be ignored
        xdg = home + b"/.local/state"
    return Places(home, os.path.abspath(environ.get(b"MUDROOM_STATE") or xdg + b"/mudroom"))


def _home_of_user() -> bytes:
    import pwd

    try:
        return os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageError(f"HOME is not set, and user {os.getuid()} has no entry in /etc/passwd", "set HOME") from None


CARD_LIMIT = 1 << 20
"""Bytes."""


def load_card(path: bytes) -> AgentCard:
    """An agent's card. Raises UsageError, one line that names the file."""
    import json

    from mudroom.core.card import CardError, parse_card

    name = show(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(CARD_LIMIT + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error
    if len(data) > CARD_LIMIT:
        raise UsageError(f"{name}: larger than any card ({show_size(CARD_LIMIT)})")
    try:
        return parse_card(json.loads(data.decode(), object_pairs_hook=_once))
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}:{line_at(data, error.start)}: this is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}:{error.lineno}: this is not JSON: {error.msg}") from error
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    except CardError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that is given twice JSON takes the last, and a reader sees the first."""
    from mudroom.core.card import CardError

    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _value in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CardError(f"{twice!r} is given twice")
    return found


def load_settings(project: bytes) -> Settings:
    """The project's settings; the defaults if it has no policy file. Raises UsageError naming file, line and key."""
    path = project + b"/" + POLICY
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise UsageError(f"{show(path)}: {error.strerror}") from error
    return parse_settings(data, show(path))


def parse_settings(data: bytes, name: str) -> Settings:
    """``name`` is what error messages call the file."""
    settings = Settings()
    networks: list[str] = []
    for key, node, where in items(compose(data, name), name, ""):
        section = _SECTIONS.get(key)
        if section is None:
            raise unknown(where, "", key, _SECTIONS)
        for below, value, at in items(node, name, key + "."):
            if below not in section:
                raise unknown(at, key + ".", below, section)
            if (key, below) == ("levels", "agents"):
                settings = _with_agents(settings, value, name)
                continue
            field, convert = section[below]
            where = f"{at}: {key}.{below}"
            networks += [where] if field == "network" else []
            if field == "never_inspect":
                never = (*settings.never_inspect, *host_rules(value, where, name, "deny"))
                settings = settings._replace(never_inspect=never)
            elif field == "hosts":
                settings = settings._replace(hosts=(*settings.hosts, *_hosts(value, where, name, below)))
            else:
                settings = with_setting(settings, field, convert(plain(value, where), where))
    if len(networks) > 1:
        raise UsageError(f"{networks[1]}: {networks[0]} says it already", "keep network.mode")
    return settings


def _hosts(node: Node, where: str, name: str, key: str) -> list[HostRule]:
    """Rules of ``network``: which hosts, or the presets that name them."""
    if key == "inspect":
        return inspect_rules(node, where, name)
    if key != "presets":
        return host_rules(node, where, name, _ACTIONS[key], private=key == "private")
    from mudroom.core.preset import PRESETS, preset_rules

    found: list[HostRule] = []
    for text, line in texts(node, where):
        if text not in PRESETS:
            raise unknown(f"{name}:{line}: network.presets", "", text, PRESETS, "preset")
        found += preset_rules(text)
    return found


_ACTIONS: dict[str, Action] = {
    "allow": "allow",
    "ask": "ask",
    "deny": "deny",
    "private": "allow",
}


def with_setting(settings: Settings, field: str, value: Any) -> Settings:
    """``field`` as ``_SECTIONS`` names it: a field of Settings, or one of the limits or levels in it."""
    name, _dot, inner = field.partition(".")
    changes: dict[str, Any] = {name: getattr(settings, name)._replace(**{inner: value}) if inner else value}
    return settings._replace(**changes)


def _with_agents(settings: Settings, node: Node, name: str) -> Settings:
    """``levels.agents``: by agentId the least level, or refuse."""
    found = []
    for agent, value, at in items(node, name, "levels.agents."):
        where = f"{at}: levels.agents.{agent}"
        given = plain(value, where)
        found.append((agent, REFUSE if given == "refuse" else _level(given, where)))
    return with_setting(settings, "levels.agents", tuple(found))


def _choice(*allowed: str) -> Callable[[Any, str], str]:
    def convert(value: Any, where: str) -> str:
        if value not in allowed:
            raise UsageError(f"{where} is {value!r}", "allowed: " + ", ".join(allowed))
        return str(value)

    return convert


def seconds(value: Any, where: str) -> float:
    """A number, or a text such as 90s, 5m, 1h, 30d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    text = str(value).strip()
    factor = units.get(text[-1:], 1)
    try:
        found = float(text[:-1] if text[-1:] in units else text) * factor
    except ValueError:
        found = -1.0
    if isinstance(value, bool) or not 0 < found < float("inf"):
        raise UsageError(f"{where} is {value!r}, which is not a time", "write seconds, or 90s, 5m, 1h")
    return found


def size(value: Any, where: str) -> int:
    """A number of bytes, or a text such as 500MB, 2 GiB."""
    found = None if isinstance(value, bool) else parse_size(str(value))
    if found is None:
        raise UsageError(f"{where} is {value!r}, which is not a size", "write bytes, or 500MB, 2GB")
    return found


def least(smallest: int) -> Callable[[Any, str], int]:
    """A size that a command can work with at all."""

    def convert(value: Any, where: str) -> int:
        found = size(value, where)
        if found < smallest:
            raise UsageError(f"{where} is {value!r}", f"at least {show_size(smallest)}: with less, nothing can run")
        return found

    return convert


def count(value: Any, where: str) -> int:
    """A whole number from 1 on, or a text of one."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    return _count(value, where)


def processors(value: Any, where: str) -> float:
    """How many processors' worth of time: 0.5, 2."""
    try:
        found = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0.01 <= found <= 1 << 16:
        raise UsageError(f"{where} is {value!r}, which is not a number of processors", "write 0.5, 1, 2 …")
    return found


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise UsageError(f"{where} is {value!r}, which is not a number from 1 on")
    return value


def _strings(value: Any, where: str) -> list[bytes]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{where} must be a list of texts")
    try:
        found = [one.encode() for one in value]
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} holds half a character") from error
    if any(b"\0" in one for one in found):
        raise UsageError(f"{where} holds a NUL character")
    return found


def _environment(value: Any, where: str) -> tuple[bytes, ...]:
    found = _strings(value, where)
    for item in found:
        if item.startswith(b"=") or not item:
            raise UsageError(f"{where}: {show(item)!r} is neither NAME nor NAME=VALUE")
    return tuple(found)


def _command(value: Any, where: str) -> tuple[bytes, ...]:
    """A text is for the shell, a list is the words of a command."""
    found = _strings([value] if isinstance(value, str) else value, where)
    if not found or not found[0].strip():
        raise UsageError(f"{where} is empty", 'write a command: "make test", or [make, test]')
    return (b"/bin/sh", b"-c", found[0]) if isinstance(value, str) else tuple(found)


def _names(value: Any, where: str) -> tuple[bytes, ...]:
    return tuple(_strings(value, where))


def _absolute(value: Any, where: str) -> tuple[bytes, ...]:
    found = _strings(value, where)
    for path in found:
        if not path.startswith(b"/"):
            raise UsageError(f"{where}: {show(path)} is not an absolute path")
        if os.path.realpath(path) == b"/":
            raise UsageError(f"{where}: {show(path)} is the whole file system", "name what is needed of it")
    return tuple(os.path.realpath(path) for path in found)


def _in_home(value: Any, where: str) -> tuple[bytes, ...]:
    found = _strings(value, where)
    for path in found:
        parts = path.split(b"/")
        if parts[0] != b"~" or len(parts) < 2 or not all(parts) or b".." in parts or b"." in parts:
            raise UsageError(f"{where}: {show(path)} is not a file of the home", "write it as ~/.netrc")
    return tuple(found)


def _patterns(value: Any, where: str) -> tuple[bytes, ...]:
    """Of gitignore(5). What could never match anything is refused."""
    found = _strings(value, where)
    for pattern in found:
        parts = pattern.removeprefix(b"!").split(b"/")
        if not any(part.strip() for part in parts) or pattern.startswith(b"#"):
            raise UsageError(f"{where}: {show(pattern)!r} names nothing")
        if b"." in parts or b".." in parts:
            raise UsageError(f"{where}: {show(pattern)} holds '.' or '..'", "write it from the project on")
    return tuple(found)


def _level(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in LEVELS:
        raise UsageError(f"{where} is {value!r}, which is no level", "0: staged view only; 1: OS sandbox; 2: container")
    return value


def _levels(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where} must be a list of levels", "[1, 2] permits no level 0")
    return tuple(_level(one, where) for one in value)


def _own_level(value: Any, where: str) -> int:
    """Of a command without a card; a container is an agent's."""
    if _level(value, where) == 2:
        raise UsageError(f"{where} is 2", "allowed: 0, 1")
    return int(value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} is {value!r}", "allowed: true, false")
    return value


_SECTIONS: dict[str, dict[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "run": {
        "network": ("network", _choice("none", "gate", "open")),
        "level": ("level", _own_level),
        "view": ("view", _choice("auto", "overlay", "copy")),
        "timeout": ("timeout", seconds),
        "environment": ("environment", _environment),
        "read": ("read", _absolute),
        "output_limit": ("output_limit", size),
    },
    "network": {
        "mode": ("network", _choice("none", "gate", "open")),
        "allow": ("hosts", _names),
        "ask": ("hosts", _names),
        "deny": ("hosts", _names),
        "private": ("hosts", _names),
        "presets": ("hosts", _names),
        "inspect": ("hosts", _names),
        "never_inspect": ("never_inspect", _names),
    },
    "limits": {
        "memory": ("limits.memory", least(4 << 20)),
        "processes": ("limits.processes", _count),
        "cpus": ("limits.cpus", processors),
        "io": ("limits.io", least(4096)),
        "open_files": ("limits.open_files", _count),
        "file_size": ("limits.file_size", size),
        "total_memory": ("limits.total_memory", least(4 << 20)),
        "total_processes": ("limits.total_processes", _count),
        "total_cpus": ("limits.total_cpus", processors),
        "missing": ("limits.missing", _choice("refuse", "degrade")),
    },
    "levels": {
        "default": ("levels.default", _level),
        "minimum": ("levels.minimum", _level),
        "allow": ("levels.allow", _levels),
        "agents": ("levels.agents", _level),  # a mapping, read by _with_agents
    },
    "secrets": {
        "mask": ("secrets_mask", _names),
        "show": ("secrets_show", _names),
    },
    "credentials": {
        "show": ("credentials", _in_home),
    },
    "copy": {
        "limit": ("copy_limit", size),
        "exclude": ("copy_exclude", _patterns),
        "gitignore": ("copy_gitignore", _flag),
    },
    "verify": {
        "command": ("verify", _command),
        "when": ("verify_when", _choice("merged", "always", "never")),
        "timeout": ("verify_timeout", seconds),
    },
    "keep": {
        "age": ("keep_age", seconds),
        "applies": ("keep_applies", _count),
        "bytes": ("keep_bytes", size),
    },
}
"""Section, key → the field of Settings, and what checks and converts the value. ``hosts`` are read by ``_hosts``."""
