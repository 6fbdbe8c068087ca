"""A setting's row, and the rules for merging and loosening that rows refer to."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.command.policy import BY_CLASS, STRICTNESS
from mudroom.core.command.verdict import ACTIONS
from mudroom.core.confinement.limit import show_size
from mudroom.core.settings import Settings
from mudroom.policy.setting_type import ValueType
from mudroom.typing import Any, Literal, NamedTuple

# --- values that loosen ---


class Loosening(NamedTuple):
    text: str
    """The values that loosen, for the reference; empty: no value does."""
    test: Callable[[Any], bool]
    """Return whether a value, or a list element, needs the user's trust in a project's file."""


def _code(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def only(*values: Any) -> Loosening:
    return Loosening(", ".join(map(_code, values)), lambda value: value in values)


def _milder_host(rule: Any) -> bool:
    """Asking loosens only if it opens private hosts or changes headers: the question names the host alone."""
    changes = rule.private or rule.set_headers or rule.remove_headers
    return bool(rule.action == "allow" or (rule.action == "ask" and changes))


LOOSENS_UP_TO = STRICTNESS["allow_with_checkpoint"]
"""Command rules with this action or a milder one loosen."""
DEFAULTS = Settings()
NEVER = Loosening("", lambda _value: False)
ANY = Loosening("any", lambda _value: True)
HEADERS = Loosening("with `action: allow` (the default); also with `ask` if `private`, `set` or `remove`", _milder_host)
BY_COMMAND_CLASS = Loosening(
    "milder than the class is without it", lambda rule: STRICTNESS[rule.action] < STRICTNESS[BY_CLASS[rule.name]]
)
BY_ACTION = Loosening(
    ", ".join(_code(action) for action in ACTIONS if STRICTNESS[action] <= LOOSENS_UP_TO),
    lambda rule: STRICTNESS[rule.action] <= LOOSENS_UP_TO,
)


def more_than(default: int) -> Loosening:
    return Loosening(f"more than {show_size(default)}", lambda value: value > default)


def above(default: int) -> Loosening:
    return Loosening(f"more than {default}", lambda value: value > default)


def less_than(default: float, display: str) -> Loosening:
    return Loosening(f"less than {display}", lambda value: value < default)


# --- merges ---


def strictest(*mild_to_strict: Any) -> Callable[[Any, Any], Any]:
    return lambda value, other: max(value, other, key=mild_to_strict.index)


def common(levels: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(level for level in levels if level in others)


def both(value: bool, other: bool) -> bool:
    return value and other


def stricter_action(action: Any, other: Any) -> Any:
    return max(action, other, key=STRICTNESS.__getitem__)


class SettingRow(NamedTuple):
    key: str
    """``section.key``."""
    field: str
    """Field in Settings, or ``limits.NAME``, ``levels.NAME``."""
    type: ValueType
    help: str
    """One line without a full stop."""
    example: str
    """A value in YAML, on one line; it differs from the default."""
    stricter: Callable[[Any, Any], Any] | None = None
    """For a setting that protects: return the value that two files give together."""
    loosening: Loosening = NEVER
    adds: bool = False
    """A list: the elements in all files add up."""
    tightens: bool = False
    """A list whose elements tighten, unless they loosen: dropping one could make a command freer."""
    own_first: bool = False
    """The user's value wins over the project's; if the project's is changed or removed, that is noticed."""
    unset: str = ""
    """Shown for a default of None, if it differs from the type's."""
    alias: str = ""
    """The key that replaces this one; both are the same setting."""

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    def convert(self, value: Any, where: str) -> Any:
        return self.type.convert(value, where)

    def loosens(self, value: Any) -> bool:
        """Return whether a value, or a list element, needs the user's trust in a project's file."""
        return self.loosening.test(value)

    @property
    def merge(self) -> Literal["add up", "stricter", "own first", "nearest"]:
        """How values from several files are merged: docs/POLICY.md, "Files"."""
        if self.adds:
            return "add up"
        if self.stricter is not None:
            return "stricter"
        return "own first" if self.own_first else "nearest"

    @property
    def default(self) -> str:
        """The value that applies without any file, for display."""
        name, _dot, inner = self.field.partition(".")
        value = getattr(DEFAULTS, name)
        value = getattr(value, inner) if inner else value
        return self.unset or self.type.unset if value is None or value == () else self.type.show(value)


def with_setting(settings: Settings, field: str, value: Any) -> Settings:
    """Return the settings with another value. ``field``: as in a row."""
    name, _dot, inner = field.partition(".")
    changes: dict[str, Any] = {name: getattr(settings, name)._replace(**{inner: value}) if inner else value}
    return settings._replace(**changes)
