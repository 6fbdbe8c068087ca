"""Every setting there is: its key, what checks and converts its value, and how the words of several files meet.

Rules of this file: a value is checked here and nowhere else. A setting that protects is *combined*: of two files the
stricter counts. Of others the nearest wins. What makes a command freer than it would be without the file
*loosens*: written in a project, by whoever wrote the project, it holds only once the user of this machine has trusted
it (``policy/combine.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from mudroom.core.agent.sandbox_level import LEVELS, REFUSE
from mudroom.core.command.policy import STRICTNESS
from mudroom.core.confinement.image import HOST, name_error
from mudroom.core.confinement.limit import parse_size, show_size
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import UsageError

LONGEST = 100 * 366 * 86400.0
"""Seconds: a hundred years. In nanoseconds it is far from what a 64-bit number holds no more."""
MOST_WARM = 8
"""Containers: each is some megabytes of memory, and a start that others wait for."""
_SHOWN = 80
"""Characters of a value in a message."""


def said(value: Any) -> str:
    """A value as a message has it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def with_setting(settings: Settings, field: str, value: Any) -> Settings:
    """``field`` as ``SECTIONS`` names it: a field of Settings, or one of the limits or levels in it."""
    name, _dot, inner = field.partition(".")
    changes: dict[str, Any] = {name: getattr(settings, name)._replace(**{inner: value}) if inner else value}
    return settings._replace(**changes)


def _choice(*allowed: str) -> Callable[[Any, str], str]:
    def convert(value: Any, where: str) -> str:
        if value not in allowed:
            raise UsageError(f"{where} is {said(value)}", "allowed: " + ", ".join(allowed))
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
    if LONGEST < found < float("inf"):
        raise UsageError(f"{where} is {said(value)}", "at most a hundred years: 36600d")
    if isinstance(value, bool) or not 0 < found <= LONGEST:
        raise UsageError(f"{where} is {said(value)}, which is not a time", "write seconds, or 90s, 5m, 1h")
    return found


def size(value: Any, where: str) -> int:
    """A number of bytes, or a text such as 500MB, 2 GiB."""
    found = None if isinstance(value, bool) else parse_size(str(value))
    if found is None:
        raise UsageError(f"{where} is {said(value)}, which is not a size", "write bytes, or 500MB, 2GB")
    return found


def least(smallest: int) -> Callable[[Any, str], int]:
    """A size that a command can work with at all."""

    def convert(value: Any, where: str) -> int:
        found = size(value, where)
        if found < smallest:
            raise UsageError(f"{where} is {said(value)}", f"at least {show_size(smallest)}: with less, nothing can run")
        return found

    return convert


def count(value: Any, where: str) -> int:
    """A whole number from 1 on, or a text of one."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal():
        value = int(value)
    return _count(value, where)


def processors(value: Any, where: str) -> float:
    """How many processors' worth of time: 0.5, 2."""
    try:
        found = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not 0.01 <= found <= 1 << 16:
        raise UsageError(f"{where} is {said(value)}, which is not a number of processors", "write 0.5, 1, 2 …")
    return found


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise UsageError(f"{where} is {said(value)}, which is not a number from 1 on")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise UsageError(f"{where} is {said(value)}, which is not a number from 0 on")
    return value


def _few(value: Any, where: str) -> int:
    if _number(value, where) > MOST_WARM:
        raise UsageError(f"{where} is {said(value)}, and at most {MOST_WARM} containers are kept ready")
    return int(value)


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


def _agents(value: Any, where: str) -> tuple[str, ...]:
    return tuple(name.decode() for name in _strings(value, where))


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
        raise UsageError(
            f"{where} is {said(value)}, which is no level", "0: staged view only; 1: OS sandbox; 2: container"
        )
    return value


def _levels(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where} must be a list of levels", "[1, 2] permits no level 0")
    return tuple(_level(one, where) for one in value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} is {said(value)}", "allowed: true, false")
    return value


def image(value: Any, where: str) -> str:
    """The name of an image, or ``host``."""
    wrong = name_error(value) if isinstance(value, str) else "is not the name of an image"
    if wrong:
        name = f" {said(value)}" if value != "" else ""
        raise UsageError(f"{where}:{name} {wrong}", f"write {HOST}, or a name as debian:bookworm")
    return str(value)


def agent_level(value: Any, where: str) -> int:
    """The least level for one agent, or REFUSE."""
    return REFUSE if value == "refuse" else _level(value, where)


class SettingRow(NamedTuple):
    field: str
    """Of Settings, or ``limits.NAME``, ``levels.NAME``."""
    convert: Callable[[Any, str], Any]
    """Of the value as YAML has it and where it stands: raises UsageError."""
    stricter: Callable[[Any, Any], Any] | None = None
    """A protection: what two files together say. None: the nearest counts."""
    loosens: Callable[[Any], bool] = lambda _value: False
    """Whether a value (of a list: one of its items) needs the user's trust if the project says it."""
    adds: bool = False
    """A list: what all files say, together."""
    own_first: bool = False
    """Of what the user says and the project says the user's counts. What is dropped or changed is missed."""


def _always(_value: Any) -> bool:
    return True


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _rank(*mild_to_strict: Any) -> Callable[[Any, Any], Any]:
    return lambda one, other: max(one, other, key=mild_to_strict.index)


def _both(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(level for level in one if level in other)


def _milder(rule: Any) -> bool:
    """What is asked about by name alone does not say that the host is private, or what is sent to it."""
    more = rule.private or rule.set_headers or rule.remove_headers
    return bool(rule.action == "allow" or (rule.action == "ask" and more))


def stricter_action(one: Any, other: Any) -> Any:
    return max(one, other, key=STRICTNESS.__getitem__)


_MODE = SettingRow("network", _choice("none", "gate", "open"), _rank("open", "gate", "none"), _is("open"))
_DEFAULTS = Settings()
SECTIONS: dict[str, dict[str, SettingRow]] = {
    "run": {
        "network": _MODE,
        "level": SettingRow("level", _level, max, _is(0)),
        "view": SettingRow("view", _choice("auto", "overlay", "copy")),
        "timeout": SettingRow("timeout", seconds, min),
        "environment": SettingRow("environment", _environment, loosens=_always, adds=True),
        "read": SettingRow("read", _absolute, loosens=_always, adds=True),
        "output_limit": SettingRow("output_limit", size, min, lambda value: value > _DEFAULTS.output_limit),
    },
    "network": {
        "mode": _MODE,
        "allow": SettingRow("hosts", _names, loosens=_always, adds=True),
        "ask": SettingRow("hosts", _names, adds=True),
        "deny": SettingRow("hosts", _names, adds=True),
        "private": SettingRow("hosts", _names, loosens=_always, adds=True),
        "presets": SettingRow("hosts", _names, loosens=_always, adds=True),
        "inspect": SettingRow("hosts", _names, loosens=_milder, adds=True),
        "never_inspect": SettingRow("never_inspect", _names, loosens=_always, adds=True),
        "cards": SettingRow("network_cards", _agents, loosens=_always, adds=True),
    },
    "limits": {
        "memory": SettingRow("limits.memory", least(4 << 20), min),
        "processes": SettingRow("limits.processes", _count, min),
        "cpus": SettingRow("limits.cpus", processors, min),
        "io": SettingRow("limits.io", least(4096), min),
        "open_files": SettingRow("limits.open_files", _count, min),
        "file_size": SettingRow("limits.file_size", size, min),
        "total_memory": SettingRow("limits.total_memory", least(4 << 20), min),
        "total_processes": SettingRow("limits.total_processes", _count, min),
        "total_cpus": SettingRow("limits.total_cpus", processors, min),
        "missing": SettingRow(
            "limits.missing", _choice("refuse", "degrade"), _rank("degrade", "refuse"), _is("degrade")
        ),
    },
    "levels": {
        "default": SettingRow("levels.default", _level, max, _is(0)),
        "minimum": SettingRow("levels.minimum", _level, max),
        "allow": SettingRow("levels.allow", _levels, _both),
        "agents": SettingRow("levels.agents", agent_level, _rank(*LEVELS, REFUSE)),  # by agent
    },
    "container": {
        "engine": SettingRow("engine", _choice("auto", "docker", "podman", "container"), loosens=_always),
        "image": SettingRow("image", image, loosens=_always),
        "cards": SettingRow("image_cards", _agents, loosens=_always, adds=True),
        "warm": SettingRow("warm", _few, loosens=_always),
    },
    "secrets": {
        "mask": SettingRow("secrets_mask", _names, adds=True),
        "show": SettingRow("secrets_show", _names, loosens=_always, adds=True),
    },
    "credentials": {
        "show": SettingRow("credentials", _in_home, loosens=_always, adds=True),
    },
    "copy": {
        "limit": SettingRow("copy_limit", size, min, lambda value: value > _DEFAULTS.copy_limit),
        "exclude": SettingRow("copy_exclude", _patterns, adds=True),
        "gitignore": SettingRow("copy_gitignore", _flag),
    },
    "verify": {
        "command": SettingRow("verify", _command, loosens=_always, own_first=True),
        "when": SettingRow(
            "verify_when", _choice("merged", "always", "never"), _rank("never", "merged", "always"), _is("never")
        ),
        "timeout": SettingRow("verify_timeout", seconds),
    },
    "keep": {
        "age": SettingRow("keep_age", seconds, max, lambda value: value < _DEFAULTS.keep_age),
        "applies": SettingRow("keep_applies", _count, max, lambda value: value < _DEFAULTS.keep_applies),
        "journal": SettingRow("keep_journal", least(100_000)),
        "journal_age": SettingRow("keep_journal_age", seconds),
        "bytes": SettingRow("keep_bytes", size, max, lambda value: value < _DEFAULTS.keep_bytes),
    },
    "commands": {
        "classes": SettingRow("commands", _names),  # by class, read by policy/command_rules.py, as the next
        "rules": SettingRow("commands", _names, adds=True),
        "background": SettingRow("background", _choice("allow", "require_approval", "deny"), stricter_action),
        "approval_timeout": SettingRow("approval_timeout", seconds),
    },
    "user_commands": {
        "sandbox": SettingRow("user_level", _level, max, _is(0)),
        "auto_apply": SettingRow(
            "auto_apply",
            _choice("never", "trusted", "always"),
            _rank("always", "trusted", "never"),
            _is("trusted", "always"),
        ),
        "auto_apply_trusted": SettingRow("auto_apply_trusted", _flag, loosens=_is(True)),
        "auto_apply_flagged": SettingRow("auto_apply_flagged", _flag, lambda one, other: one and other, _is(True)),
        "trusted": SettingRow("trusted", _names, loosens=_always, adds=True),
        "show_diff_threshold": SettingRow("show_diff_threshold", _number),
    },
}
"""Section, key → what there is to know of it. ``hosts`` are read by ``document.host_rules``. ``roles`` and ``agents``
are sections whose keys people choose (``policy/command_rules.py``)."""
