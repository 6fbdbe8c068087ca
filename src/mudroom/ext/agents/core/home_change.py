"""An agent's staged store: the files that are copied into a fork, and the changes that are shown. Pure.

Rules of this file:
1. A fork's commands see the fork's own copy of the store. Only ``tokens``, the logins, and the members in ``renewed``
   go back to the host by themselves (``login.py``).
2. ``state`` is not copied from the host, since it tells of other projects. It stays in the fork, and is not shown.
3. In a file in ``keys`` only the listed parts of its JSON count: programs that keep counters and settings in one file
   change it at every start.
4. Every other changed file may run later or be obeyed as a setting: it is shown, and lands only if it is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.text.regex import regex
from mudroom.ext.agents.core.artifact import matcher
from mudroom.ext.agents.core.jsonc import parse
from mudroom.typing import Any, Literal, NamedTuple

_ANY = "*"


class HomeFile(NamedTuple):
    """A file in a store: on the host when it was copied, on the host now, or in a fork."""

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
    """The fork's file's; empty if it is removed."""


Files = Mapping[bytes, HomeFile]


def home_changes(base: Files, staged: Files, host: Files, state: Iterable[str]) -> list[HomeChange]:
    """Return a fork's changes in its copy, by path. ``base``: the files as copied; ``host``: those on the host now."""
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


_RECORD = regex(
    rb"(?i)(.*/)?(logs?/.+|[^/]+\.(log(\.\d+)?|jsonl|lock|pid|db|sqlite3?)(-wal|-shm|-journal)?|[^/]*history(\.(txt|json|pt))?)"
)
_EXECUTABLE = 0o111


def is_record(change: HomeChange) -> bool:
    """Return whether a changed file is a log, a database, a lock or a history: no program runs or obeys it."""
    is_file = not change.mode & _EXECUTABLE and not change.digest.startswith("link:")
    return is_file and _RECORD.fullmatch(change.path) is not None


def changed_members(path: bytes, before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the names of the members at the top of a file of settings that differ; empty for another file."""
    read = _READERS.get(path.rpartition(b".")[2].lower())
    if read is None:
        return ()
    old, new = read(before) or {}, read(after) or {}
    return tuple(sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name)))


_POWER = regex(
    r"(?i).*(hook|mcp|command|cmd|permission|allow|approv|trust|extension|plugin|notify|env|helper|lsp|sandbox|bypass|yolo"
    r"|auto|tool|shell|provider|server|^path$).*"
)


def has_power(path: bytes, members: Iterable[str]) -> bool:
    """Return whether a file's members may run a program or change what the agent may do, by their names. A file of
    variables does."""
    return path.endswith(b".env") or any(_POWER.fullmatch(name) for name in members)


def _table(text: bytes) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError):
        return None


def _commented(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object, with comments or without: agents read both. Comments are sought in a small text only."""
    value: Any = _object(text)
    if value is None and len(text) <= _LARGEST:
        try:
            value = parse(text.decode()).value
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


_LARGEST = 1 << 20
_SECTION = regex(r"(?m)^(?:export[ \t]+)?[\"']?([\w.-]+)[\"']?[ \t]*[:=]")


def _sections(text: bytes) -> dict[str, Any]:
    """Return the lines of each member at the top of a YAML file, or of a file of variables."""
    parts = _SECTION.split(text.decode("utf-8", "surrogateescape"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


_READERS: Mapping[bytes, Callable[[bytes], dict[str, Any] | None]] = {
    b"json": _commented, b"jsonc": _commented, b"toml": _table, b"yaml": _sections, b"yml": _sections,
    b"env": _sections,
}  # fmt: skip


def changed_keys(before: bytes, after: bytes, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the differing parts of two JSON texts, among those that ``keys`` name. A text that is no JSON object has
    no parts."""
    old, new = _parts(before, keys), _parts(after, keys)
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def with_keys(text: bytes, source: bytes, paths: Iterable[str], keys: Iterable[str]) -> bytes:
    """Return the JSON ``text`` with the parts at ``paths`` (from ``changed_keys``) taken from ``source``. Raise
    ValueError if either is no JSON object."""
    value, other = _object(text), _object(source)
    if value is None or other is None:
        raise ValueError("it is no JSON object")
    names = {_name(path): path for pattern in keys for path in _matching(other, pattern.split("."))}
    names |= {_name(path): path for pattern in keys for path in _matching(value, pattern.split("."))}
    for name in paths:
        _set(value, names[name], _get(other, names[name]))
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def tokens_in(text: bytes, beside: bytes, keys: Iterable[str]) -> bytes | None:
    """Return the members of a JSON text that ``keys`` name, as far as they are tokens here and in ``beside``, as JSON.
    Return None if either is no JSON object."""
    value, other = _object(text), _object(beside)
    if value is None or other is None:
        return None
    found = [{"at": path, path[-1]: _get(value, path)} for path in _tokens(value, other, keys)]
    return json.dumps({"tokens": found}).encode()


def with_renewed(text: bytes, source: bytes, keys: Iterable[str]) -> bytes:
    """Return the JSON ``text`` with its tokens taken from ``source``, as far as both have them."""
    value, other = _object(text), _object(source)
    if value is None or other is None:
        return text
    for path in _tokens(value, other, keys):
        _set(value, path, _get(other, path))
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def without_renewed(text: bytes, keys: Iterable[str]) -> bytes:
    """Return a JSON text without its tokens, in one form; another text as it is."""
    value = _object(text)
    if value is None:
        return text
    for path in _tokens(value, value, keys):
        _set(value, path, "")
    return json.dumps(value, sort_keys=True).encode()


def _tokens(value: Any, other: Any, keys: Iterable[str]) -> list[_Path]:
    paths = (path for pattern in keys for path in _matching(value, pattern.split(".")))
    return [path for path in paths if _is_token(_get(value, path)) and _is_token(_get(other, path))]


def _is_token(value: Any) -> bool:
    """Return whether a value is a text or a number, and not empty: no other is a token or its end."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and bool(value)


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
