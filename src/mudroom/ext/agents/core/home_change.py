"""An agent's store, staged: which of its files are copied into a fork, and which of their changes are shown. Pure.

Rules of this file:
1. Commands of a fork see a copy of the store, which is the fork's. Of it only ``tokens``, the logins, go back to the
   host by themselves (``login.py``).
2. ``state`` is not copied from the host, since it tells of other projects. It stays in the fork, and is not shown.
3. Of a file in ``keys`` only the listed parts of its JSON count: programs that keep counters and settings in one file
   change it at every start.
4. Everything else that has changed runs later, or is obeyed: it is shown, and lands only if it is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from mudroom.ext.agents.core.artifact import matcher
from mudroom.typing import Any, Literal, NamedTuple

_ANY = "*"


class HomeFile(NamedTuple):
    """A file of a store: on the host when it was copied, on the host now, or in a fork."""

    digest: str
    """BLAKE2b of the content, hexadecimal; ``link:TARGET`` for a symbolic link."""
    mode: int


class HomeChange(NamedTuple):
    path: bytes
    change: Literal["new", "changed", "removed"]
    conflict: bool = False
    """Whether the host's file has changed, too, since it was copied."""
    keys: tuple[str, ...] = ()
    """The parts of its JSON that differ, for a file in ``keys``."""
    mode: int = 0
    digest: str = ""
    """Of the fork's file; empty if it is removed."""


Files = Mapping[bytes, HomeFile]


def home_changes(base: Files, staged: Files, host: Files, state: Iterable[str]) -> list[HomeChange]:
    """Return what a fork has changed in its copy, by path. ``base``: as it was copied; ``host``: as it is outside."""
    is_state = matcher(tuple(state))
    changes = []
    for path in sorted(base.keys() | staged.keys()):
        before, after, now = base.get(path), staged.get(path), host.get(path)
        if after in (before, now) or is_state(path):
            continue
        kind: Literal["new", "changed", "removed"] = "removed" if after is None else "changed" if before else "new"
        mode, digest = (after.mode, after.digest) if after is not None else (0, "")
        changes.append(HomeChange(path, kind, now != before, (), mode, digest))
    return changes


def changed_keys(before: bytes, after: bytes, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of two JSON texts that differ, of those that ``keys`` name. A text that is no JSON object has no
    part."""
    old, new = _parts(before, keys), _parts(after, keys)
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def with_keys(text: bytes, source: bytes, paths: Iterable[str], keys: Iterable[str]) -> bytes:
    """Return the JSON ``text`` with the parts at ``paths`` (of ``changed_keys``) as ``source`` has them. Raise
    ValueError if either is no JSON object."""
    value, other = _object(text), _object(source)
    if value is None or other is None:
        raise ValueError("it is no JSON object")
    names = {_name(path): path for pattern in keys for path in _matching(other, pattern.split("."))}
    names |= {_name(path): path for pattern in keys for path in _matching(value, pattern.split("."))}
    for name in paths:
        _set(value, names[name], _get(other, names[name]))
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


_Path = tuple[str, ...]
_MISSING = object()


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parts(text: bytes, keys: Iterable[str]) -> dict[str, str]:
    value = _object(text)
    if value is None:
        return {}
    paths = (path for pattern in keys for path in _matching(value, pattern.split(".")))
    return {_name(path): json.dumps(_get(value, path), sort_keys=True) for path in paths}


def _name(path: _Path) -> str:
    return ".".join(path)


def _matching(value: Any, pattern: list[str]) -> list[_Path]:
    if not pattern:
        return [()]
    if not isinstance(value, dict):
        return []
    names = list(value) if pattern[0] == _ANY else [pattern[0]] if pattern[0] in value else []
    return [(name, *rest) for name in names for rest in _matching(value[name], pattern[1:])]


def _get(value: Any, path: _Path) -> Any:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _set(value: dict[str, Any], path: _Path, content: Any) -> None:
    for name in path[:-1]:
        below = value.setdefault(name, {})
        if not isinstance(below, dict):
            below = value[name] = {}
        value = below
    if content is _MISSING:
        value.pop(path[-1], None)
    else:
        value[path[-1]] = content
