"""The origin's settings in an errand, as MessagePack and back.

An instance of a known class is a map: its fields that differ from their defaults, and its class name under ``class``. A
tuple is an array. A field or a class that the reader does not know is an error: a setting that is silently left out
would be a missing protection.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LevelPolicy
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.confinement.limit import Limits
from mudroom.core.network.fork_host import AgentLink
from mudroom.core.network.fork_rule import ForkRule
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings, StartCommand
from mudroom.ext.fleet.wire.frame import LinkError

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        AgentLink,
        ClassRule,
        CommandPolicy,
        CommandRule,
        ForkRule,
        HostRule,
        LevelPolicy,
        Limits,
        Role,
        Settings,
        StartCommand,
    )
}
_DEEPEST = 16
"""Values within values."""


def encode(settings: Settings) -> bytes:
    return msgspec.msgpack.encode(_plain(settings))


def decode(data: bytes) -> Settings:
    """Return the settings. Raise LinkError if they are damaged, or from a mudroom version that knows others."""
    try:
        settings = _value(msgspec.msgpack.decode(data), _DEEPEST)
    except (msgspec.DecodeError, RecursionError, TypeError, UnicodeDecodeError) as error:
        raise LinkError(f"sent settings that cannot be read: {error}") from error
    if not isinstance(settings, Settings):
        raise LinkError("sent settings that are none")
    return settings


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    if type(value) is tuple:
        return [_plain(item) for item in value]
    kind: Any = type(value)
    defaults = kind._field_defaults
    fields = zip(kind._fields, value, strict=True)
    return {"class": kind.__name__} | {
        name: _plain(item) for name, item in fields if name not in defaults or defaults[name] != item
    }


def _value(value: Any, deep: int) -> Any:
    if not deep:
        raise LinkError("sent settings that are nested too deeply")
    if isinstance(value, list):
        return tuple(_value(item, deep - 1) for item in value)
    if not isinstance(value, dict):
        return value
    kind = _CLASSES.get(str(value.pop("class", "")))
    strange = set(value) - set(kind._fields) if kind is not None else {"class"}
    if kind is None or strange:
        names = ", ".join(sorted(map(str, strange)))
        raise LinkError(
            f"sent a setting that mudroom {__version__} does not know ({names}): pipx upgrade mudroom, there"
        )
    return kind(**{name: _value(item, deep - 1) for name, item in value.items()})
