"""Where things are, and what the user has set. Beside ``cli/`` the only file that looks at the environment.

``.mudroom/policy.yaml`` in the project is read by the host only; a sandbox may read it too but cannot change it.
Whatever is wrong in it is an error that names the file, the line and the key: a setting that is ignored in silence
is a protection that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.path import relpath, show
from mudroom.core.settings import Settings
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from yaml.nodes import Node

POLICY = b".mudroom/policy.yaml"


class Places(NamedTuple):
    home: bytes
    state: bytes


def places(environ: Mapping[bytes, bytes]) -> Places:
    """The home directory and mudroom's state directory (MUDROOM_STATE, else XDG_STATE_HOME/mudroom)."""
    home = environ.get(b"HOME") or _home_of_user()
    if not home.startswith(b"/"):
        raise UsageError(f"HOME is not an absolute path: {show(home)}")
    state = environ.get(b"MUDROOM_STATE") or (environ.get(b"XDG_STATE_HOME") or home + b"/.local/state") + b"/mudroom"
    return Places(os.path.realpath(home), os.path.abspath(state))


def _home_of_user() -> bytes:
    import pwd

    return os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)


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
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(data, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"{name}{line}: this is not YAML: {problem}") from error
    settings = Settings()
    for key, node, where in _items(root, name, ""):
        section = _SECTIONS.get(key)
        if section is None:
            raise _unknown(where, key, _SECTIONS)
        for below, value, at in _items(node, name, key + "."):
            if below not in section:
                raise _unknown(at, f"{key}.{below}", [f"{key}.{one}" for one in section])
            field, convert = section[below]
            settings = settings._replace(**{field: convert(_plain(value, loader), f"{at}: {key}.{below}")})
    return settings


def _items(node: Node | None, name: str, prefix: str) -> list[tuple[str, Node, str]]:
    """(key, value, "file:line") of a mapping node."""
    from yaml.nodes import MappingNode, ScalarNode

    if node is None:
        return []
    where = f"{name}:{node.start_mark.line + 1}"
    if not isinstance(node, MappingNode):
        raise UsageError(f"{where}: {prefix.rstrip('.') or 'the file'} must hold keys with values")
    found, seen = [], set()
    for key, value in node.value:
        at = f"{name}:{key.start_mark.line + 1}"
        if not isinstance(key, ScalarNode):
            raise UsageError(f"{at}: a key must be a plain text")
        if key.value in seen:
            raise UsageError(f"{at}: {prefix}{key.value} is given twice")
        seen.add(key.value)
        found.append((str(key.value), value, at))
    return found


def _plain(node: Node, loader: Any) -> Any:
    constructor = loader("")
    try:
        return constructor.construct_object(node, deep=True)
    finally:
        constructor.dispose()


def _unknown(where: str, key: str, known: Any) -> UsageError:
    import difflib

    near = difflib.get_close_matches(key, list(known), 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(sorted(known))
    return UsageError(f"{where}: there is no setting {key}", hint)


def _choice(*allowed: str) -> Callable[[Any, str], str]:
    def convert(value: Any, where: str) -> str:
        if value not in allowed:
            raise UsageError(f"{where} is {value!r}", "allowed: " + ", ".join(allowed))
        return str(value)

    return convert


def seconds(value: Any, where: str) -> float:
    """A number, or a text such as 90s, 5m, 1h."""
    units = {"s": 1, "m": 60, "h": 3600}
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
    """A number of bytes, or a text such as 500MB, 2GB."""
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    text = str(value).strip().lower()
    unit = next((unit for unit in sorted(units, key=len, reverse=True) if text.endswith(unit)), "")
    try:
        found = int(float(text[: len(text) - len(unit)]) * units.get(unit, 1))
    except (ValueError, OverflowError):
        found = -1
    if isinstance(value, bool) or found < 0:
        raise UsageError(f"{where} is {value!r}, which is not a size", "write bytes, or 500MB, 2GB")
    return found


def _strings(value: Any, where: str) -> list[bytes]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{where} must be a list of texts")
    return [os.fsencode(one) for one in value]


def _environment(value: Any, where: str) -> tuple[bytes, ...]:
    return tuple(_strings(value, where))


def _absolute(value: Any, where: str) -> tuple[bytes, ...]:
    found = _strings(value, where)
    for path in found:
        if not path.startswith(b"/"):
            raise UsageError(f"{where}: {show(path)} is not an absolute path")
    return tuple(os.path.realpath(path) for path in found)


def _inside(value: Any, where: str) -> tuple[bytes, ...]:
    try:
        return tuple(relpath(path) for path in _strings(value, where))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


_SECTIONS: dict[str, dict[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "run": {
        "network": ("network", _choice("none", "open")),
        "view": ("view", _choice("auto", "overlay", "copy")),
        "timeout": ("timeout", seconds),
        "environment": ("environment", _environment),
        "read": ("read", _absolute),
        "output_limit": ("output_limit", size),
    },
    "copy": {
        "limit": ("copy_limit", size),
        "exclude": ("copy_exclude", _inside),
    },
}
"""Section, key → the field of Settings, and what checks and converts the value."""
