"""The table of settings: one row for each key of a policy file, with all its facts.

A row has the key, the check of a value, its JSON Schema, the merge of several files, the values that loosen, the
default, a line of help and an example. The reader (``policy/parse.py``), the merge (``policy/combine.py``), the trust
(``policy/trust.py``), the JSON Schema (``policy/schema.py``), the table in ``docs/POLICY.md``
(``policy/reference.py``), the first policy file (``policy/first_policy.py``) and ``mudroom policy show`` read them from
here.

Rules of this file: a value is checked here and nowhere else. Of a setting that protects, the stricter value of two
files applies; of any other, the nearest file's. A value *loosens* if it makes a command freer than without the file: in
a project's file it applies only once the user of this machine has trusted it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from mudroom.core.agent.level import LEVELS, REFUSE
from mudroom.core.command.policy import BY_CLASS, STRICTNESS
from mudroom.core.command.verdict import ACTIONS
from mudroom.core.confinement.image import HOST, name_error
from mudroom.core.confinement.limit import parse_size, show_size
from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.errors import UsageError

LONGEST = 100 * 366 * 86400.0
"""Seconds: a hundred years. In nanoseconds it fits a 64-bit number by far."""
MOST_WARM = 8
"""Containers. Each takes some megabytes of memory, and delays other starts by its own."""
_SHOWN = 80
"""Characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def with_setting(settings: Settings, field: str, value: Any) -> Settings:
    """Return the settings with another value. ``field``: as in a row."""
    name, _dot, inner = field.partition(".")
    changes: dict[str, Any] = {name: getattr(settings, name)._replace(**{inner: value}) if inner else value}
    return settings._replace(**changes)


def _choice(*allowed: str) -> Callable[[Any, str], str]:
    def convert(value: Any, where: str) -> str:
        if value not in allowed:
            raise UsageError(f"{where} is {shown(value)}", "allowed: " + ", ".join(allowed))
        return str(value)

    return convert


def seconds(value: Any, where: str) -> float:
    """Return seconds from a number, or a text such as 90s, 5m, 1h, 30d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    text = str(value).strip()
    factor = units.get(text[-1:], 1)
    try:
        duration = float(text[:-1] if text[-1:] in units else text) * factor
    except ValueError:
        duration = -1.0
    if LONGEST < duration < float("inf"):
        raise UsageError(f"{where} is {shown(value)}", "at most a hundred years: 36600d")
    if isinstance(value, bool) or not 0 < duration <= LONGEST:
        raise UsageError(f"{where} is {shown(value)}, which is not a time", "write seconds, or 90s, 5m, 1h")
    return duration


def size(value: Any, where: str) -> int:
    """Return bytes from a number, or a text such as 500MB, 2 GiB."""
    length = None if isinstance(value, bool) else parse_size(str(value))
    if length is None:
        raise UsageError(f"{where} is {shown(value)}, which is not a size", "write bytes, or 500MB, 2GB")
    return length


def least(smallest: int) -> Callable[[Any, str], int]:
    """Return a check for sizes that are large enough for a command to run."""

    def convert(value: Any, where: str) -> int:
        length = size(value, where)
        if length < smallest:
            raise UsageError(
                f"{where} is {shown(value)}", f"at least {show_size(smallest)}: with less, nothing can run"
            )
        return length

    return convert


def count(value: Any, where: str) -> int:
    """Return a whole number from 1 on, also from a text."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal():
        value = int(value)
    return _count(value, where)


def processors(value: Any, where: str) -> float:
    """Return processor time as a number of processors: 0.5, 2."""
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0.01 <= number <= 1 << 16:
        raise UsageError(f"{where} is {shown(value)}, which is not a number of processors", "write 0.5, 1, 2 …")
    return number


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise UsageError(f"{where} is {shown(value)}, which is not a number from 1 on")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise UsageError(f"{where} is {shown(value)}, which is not a number from 0 on")
    return value


def _few(value: Any, where: str) -> int:
    if _number(value, where) > MOST_WARM:
        raise UsageError(f"{where} is {shown(value)}, and at most {MOST_WARM} containers are kept ready")
    return int(value)


def _strings(value: Any, where: str) -> list[bytes]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f"{where} must be a list of texts")
    try:
        texts = [text.encode() for text in value]
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} holds half a character") from error
    if any(b"\0" in text for text in texts):
        raise UsageError(f"{where} holds a NUL character")
    return texts


def _environment(value: Any, where: str) -> tuple[bytes, ...]:
    entries = _strings(value, where)
    for item in entries:
        if item.startswith(b"=") or not item:
            raise UsageError(f"{where}: {show(item)!r} is neither NAME nor NAME=VALUE")
    return tuple(entries)


def _command(value: Any, where: str) -> tuple[bytes, ...]:
    """Return a command. A text runs in the shell; a list holds the words of a command."""
    words = _strings([value] if isinstance(value, str) else value, where)
    if not words or not words[0].strip():
        raise UsageError(f"{where} is empty", 'write a command: "make test", or [make, test]')
    return (b"/bin/sh", b"-c", words[0]) if isinstance(value, str) else tuple(words)


def _names(value: Any, where: str) -> tuple[bytes, ...]:
    return tuple(_strings(value, where))


def _agents(value: Any, where: str) -> tuple[str, ...]:
    return tuple(name.decode() for name in _strings(value, where))


def _absolute(value: Any, where: str) -> tuple[bytes, ...]:
    paths = _strings(value, where)
    for path in paths:
        if not path.startswith(b"/"):
            raise UsageError(f"{where}: {show(path)} is not an absolute path")
        if os.path.realpath(path) == b"/":
            raise UsageError(f"{where}: {show(path)} is the whole file system", "name what is needed of it")
    return tuple(os.path.realpath(path) for path in paths)


def _in_home(value: Any, where: str) -> tuple[bytes, ...]:
    paths = _strings(value, where)
    for path in paths:
        parts = path.split(b"/")
        if parts[0] != b"~" or len(parts) < 2 or not all(parts) or b".." in parts or b"." in parts:
            raise UsageError(f"{where}: {show(path)} is not a file of the home", "write it as ~/.netrc")
    return tuple(paths)


def _patterns(value: Any, where: str) -> tuple[bytes, ...]:
    """Return patterns of gitignore(5). Raise UsageError for a pattern that cannot match any path."""
    patterns = _strings(value, where)
    for pattern in patterns:
        parts = pattern.removeprefix(b"!").split(b"/")
        if not any(part.strip() for part in parts) or pattern.startswith(b"#"):
            raise UsageError(f"{where}: {show(pattern)!r} names nothing")
        if b"." in parts or b".." in parts:
            raise UsageError(f"{where}: {show(pattern)} holds '.' or '..'", "write it from the project on")
    return tuple(patterns)


def _level(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in LEVELS:
        raise UsageError(
            f"{where} is {shown(value)}, which is no level", "0: staged view only; 1: OS sandbox; 2: container"
        )
    return value


def _levels(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where} must be a list of levels", "[1, 2] permits no level 0")
    return tuple(_level(level, where) for level in value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} is {shown(value)}", "allowed: true, false")
    return value


def image(value: Any, where: str) -> str:
    """Return the name of an image, or ``host``."""
    wrong = name_error(value) if isinstance(value, str) else "is not the name of an image"
    if wrong:
        name = f" {shown(value)}" if value != "" else ""
        raise UsageError(f"{where}:{name} {wrong}", f"write {HOST}, or a name as debian:bookworm")
    return str(value)


def agent_level(value: Any, where: str) -> int:
    """Return the minimum level for an agent, or REFUSE."""
    return REFUSE if value == "refuse" else _level(value, where)


# --- types of values ---


class ValueType(NamedTuple):
    convert: Callable[[Any, str], Any]
    """Check and convert a value as parsed from YAML; the second argument is its position. Raises UsageError."""
    schema: dict[str, Any]
    """JSON Schema of the value in the file."""
    form: str = ""
    """How to write a value, if the help does not say it."""
    show: Callable[[Any], str] = str
    """Return a default for display."""
    unset: str = "none"
    """Display of a default of None or an empty list."""


def _show_time(value: float) -> str:
    factor, unit = next((f, u) for f, u in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")) if not value % f)
    return f"{value / factor:.0f}{unit}"


def _show_flag(value: bool) -> str:
    return "true" if value else "false"


def _choices(*allowed: str) -> ValueType:
    return ValueType(_choice(*allowed), {"enum": list(allowed)})


def _texts(convert: Callable[[Any, str], Any], **item: Any) -> ValueType:
    return ValueType(convert, {"type": "array", "items": {"type": "string", **item}})


_LINE = {"type": "string", "minLength": 1, "pattern": "^[^\\n\\r]*$"}
_NO_LIMIT = "no limit"
_FLAG = ValueType(_flag, {"type": "boolean"}, show=_show_flag)
_COUNT = ValueType(_count, {"type": "integer", "minimum": 1, "maximum": (1 << 31) - 1}, unset=_NO_LIMIT)
_PROCESSORS = ValueType(processors, {"type": ["number", "string"]}, unset=_NO_LIMIT)
_TIME = ValueType(
    seconds,
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": "^\\s*[0-9.eE+]+\\s*[smhd]?\\s*$"},
        ]
    },
    "seconds, or 90s, 5m, 1h, 30d",
    _show_time,
    _NO_LIMIT,
)
_SIZE = ValueType(
    size,
    {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": "^\\s*[0-9.]+\\s*([kKmMgGtT]?([iI]?[bB])?)\\s*$"},
        ]
    },
    "bytes, or 500MB, 2 GiB",
    show_size,
    _NO_LIMIT,
)
_LEVEL_SCHEMA = {"enum": list(LEVELS)}
_LEVEL = ValueType(_level, _LEVEL_SCHEMA, "0: staged view only; 1: OS sandbox; 2: container")
_LEVEL_LIST = ValueType(
    _levels, {"type": "array", "minItems": 1, "items": _LEVEL_SCHEMA}, show=lambda levels: str(list(levels))
)
_AGENT_LEVELS = ValueType(
    agent_level, {"type": "object", "additionalProperties": {"enum": [*LEVELS, "refuse"]}}, "agentId: level, or refuse"
)
_MODE = ValueType(
    _choice("none", "gate", "open"),
    {"enum": ["none", "gate", "open"]},
    "gate: allowed hosts only; none: no network; open: the host's network",
    lambda mode: "gate; at level 0 open" if mode == "auto" else str(mode),
)
_HOSTS = ValueType(_names, {"type": "array", "items": {"type": "string"}}, 'NAME[:PORT,…]; "*.example.com" in quotes')
_PRESETS = ValueType(_names, {"type": "array", "items": {"$ref": "#/$defs/preset"}})
_INSPECTED = ValueType(_names, {"type": "array", "items": {"$ref": "#/$defs/inspect"}})
_ENVIRONMENT = _texts(_environment, pattern="^[^=]")._replace(form="NAME or NAME=VALUE")
_PATHS = _texts(_absolute, pattern="^/.")
_HOME_FILES = _texts(_in_home, pattern="^~/.")
_NAMES = _texts(_names)
_AGENTS = _texts(_agents)
_IMAGE = ValueType(
    image,
    _LINE | {"pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"},
    "host: the host's own toolchain; or the name of a local image, never pulled",
    unset=f"{HOST}, or the image of an agent card",
)
_WARM = ValueType(_few, {"type": "integer", "minimum": 0, "maximum": MOST_WARM})
_LINES = ValueType(_number, {"type": "integer", "minimum": 0})
_COMMAND = ValueType(
    _command,
    {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]},
    "a text for the shell, or a list of words",
)
_CLASSES = ValueType(
    _names,  # read by policy/command_rules.py
    {"$ref": "#/$defs/classes"},
    "CLASS: ACTION",
    lambda _policy: ", ".join(f"{name}: {action}" for name, action in BY_CLASS.items()),
)
_RULES = ValueType(
    _names,  # read by policy/command_rules.py
    {"type": "array", "items": {"$ref": "#/$defs/rule"}},
    show=lambda _policy: "none",
)
_WORDS = ValueType(_names, {"type": "array", "items": _LINE})


# --- values that loosen ---


class Loosening(NamedTuple):
    text: str
    """The values that loosen, for the reference; empty: no value does."""
    test: Callable[[Any], bool]
    """Whether a value, or an element of a list, needs the user's trust in a project's file."""


def _code(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _is(*values: Any) -> Loosening:
    return Loosening(", ".join(map(_code, values)), lambda value: value in values)


def _milder_host(rule: Any) -> bool:
    """Asking loosens only if it opens private hosts or changes headers: the question names the host alone."""
    changes = rule.private or rule.set_headers or rule.remove_headers
    return bool(rule.action == "allow" or (rule.action == "ask" and changes))


LOOSENS_UP_TO = STRICTNESS["allow_with_checkpoint"]
"""Command rules with this action or a milder one loosen."""
_DEFAULTS = Settings()
_NEVER = Loosening("", lambda _value: False)
_ANY = Loosening("any", lambda _value: True)
_HEADERS = Loosening(
    "with `action: allow` (the default); also with `ask` if `private`, `set` or `remove`", _milder_host
)
_BY_CLASS = Loosening(
    "milder than the class is without it", lambda rule: STRICTNESS[rule.action] < STRICTNESS[BY_CLASS[rule.name]]
)
_BY_ACTION = Loosening(
    ", ".join(_code(action) for action in ACTIONS if STRICTNESS[action] <= LOOSENS_UP_TO),
    lambda rule: STRICTNESS[rule.action] <= LOOSENS_UP_TO,
)


def _more_than(default: int) -> Loosening:
    return Loosening(f"more than {show_size(default)}", lambda value: value > default)


def _less_than(default: float, display: str) -> Loosening:
    return Loosening(f"less than {display}", lambda value: value < default)


# --- merges ---


def _strictest(*mild_to_strict: Any) -> Callable[[Any, Any], Any]:
    return lambda value, other: max(value, other, key=mild_to_strict.index)


def _common(levels: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(level for level in levels if level in others)


def _both(value: bool, other: bool) -> bool:
    return value and other


def stricter_action(action: Any, other: Any) -> Any:
    return max(action, other, key=STRICTNESS.__getitem__)


# --- the table ---


class SettingRow(NamedTuple):
    key: str
    """``section.key``."""
    field: str
    """Field of Settings, or ``limits.NAME``, ``levels.NAME``."""
    type: ValueType
    help: str
    """One line without a full stop."""
    example: str
    """A value in YAML, on one line; it differs from the default."""
    stricter: Callable[[Any, Any], Any] | None = None
    """Merge of a setting that protects: the value that two files give together."""
    loosening: Loosening = _NEVER
    adds: bool = False
    """A list: the elements of all files add up."""
    tightens: bool = False
    """A list whose elements tighten, unless they loosen: dropping one could make a command freer."""
    own_first: bool = False
    """The user's value wins over the project's; a change or removal of the project's is noticed."""
    unset: str = ""
    """Display of the default None, if it differs from the type's."""
    alias: str = ""
    """The key that replaces this one; both are the same setting."""

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    def convert(self, value: Any, where: str) -> Any:
        return self.type.convert(value, where)

    def loosens(self, value: Any) -> bool:
        """Return whether a value, or an element of a list, needs the user's trust in a project's file."""
        return self.loosening.test(value)

    @property
    def merge(self) -> Literal["add up", "stricter", "own first", "nearest"]:
        """How the values of several files are merged: docs/POLICY.md, "Several files"."""
        if self.adds:
            return "add up"
        if self.stricter is not None:
            return "stricter"
        return "own first" if self.own_first else "nearest"

    @property
    def default(self) -> str:
        """Display of the value that applies without any file."""
        name, _dot, inner = self.field.partition(".")
        value = getattr(_DEFAULTS, name)
        value = getattr(value, inner) if inner else value
        return self.unset or self.type.unset if value is None or value == () else self.type.show(value)


ROWS: tuple[SettingRow, ...] = (
    SettingRow(
        "run.network",
        "network",
        _MODE,
        "same as network.mode, which is preferred",
        "none",
        stricter=_strictest("open", "gate", "none"),
        loosening=_is("open"),
        alias="network.mode",
    ),
    SettingRow(
        "run.level", "level", _LEVEL, "level of a command without an agent card", "2", stricter=max, loosening=_is(0)
    ),
    SettingRow(
        "run.view",
        "view",
        _choices("auto", "overlay", "copy"),
        "kernel overlay or staged copy; auto: overlay where possible",
        "copy",
    ),
    SettingRow("run.timeout", "timeout", _TIME, "a command is killed after this time", "10m", stricter=min),
    SettingRow(
        "run.environment",
        "environment",
        _ENVIRONMENT,
        "further variables for commands",
        "[NPM_CONFIG_REGISTRY]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "run.read",
        "read",
        _PATHS,
        "further absolute paths that commands may read",
        "[/srv/shared-fixtures]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "run.output_limit",
        "output_limit",
        _SIZE,
        "captured bytes of stdout and of stderr; the rest is dropped, with a note",
        "1 MiB",
        stricter=min,
        loosening=_more_than(_DEFAULTS.output_limit),
    ),
    SettingRow(
        "network.mode",
        "network",
        _MODE,
        "network of commands",
        "none",
        stricter=_strictest("open", "gate", "none"),
        loosening=_is("open"),
    ),
    SettingRow(
        "network.allow",
        "hosts",
        _HOSTS,
        "hosts that commands may reach",
        '[api.example.com, "*.example.org:443"]',
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "network.ask",
        "hosts",
        _HOSTS,
        "hosts that are always asked about, as are hosts without a rule",
        "[upload.example.com]",
        adds=True,
        tightens=True,
    ),
    SettingRow(
        "network.deny",
        "hosts",
        _HOSTS,
        "hosts that commands may never reach",
        "[gist.github.com]",
        adds=True,
        tightens=True,
    ),
    SettingRow(
        "network.private",
        "hosts",
        _HOSTS,
        "allowed hosts that may be in a private network or on this machine",
        '["db.corp.example:5432"]',
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "network.presets",
        "hosts",
        _PRESETS,
        "rules for the hosts of common tools",
        "[npm, pypi, github]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "network.inspect",
        "hosts",
        _INSPECTED,
        "hosts whose requests are allowed and inspected inside TLS",
        "[api.github.com]",
        loosening=_HEADERS,
        adds=True,
        tightens=True,
    ),
    SettingRow(
        "network.never_inspect",
        "never_inspect",
        _HOSTS,
        "hosts that are never inspected, whatever other rules say",
        '["*.bank.example"]',
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "network.cards",
        "network_cards",
        _AGENTS,
        "agents whose cards may allow hosts; a deny still holds",
        "[claude-code]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "limits.memory",
        "limits.memory",
        _SIZE._replace(convert=least(4 << 20)),
        "memory of a command with its child processes",
        "4 GiB",
        stricter=min,
    ),
    SettingRow(
        "limits.processes",
        "limits.processes",
        _COUNT,
        "processes and threads of a command at the same time",
        "500",
        stricter=min,
    ),
    SettingRow(
        "limits.cpus",
        "limits.cpus",
        _PROCESSORS,
        "processor time of a command, as a number of processors: 0.5, 2",
        "1.5",
        stricter=min,
    ),
    SettingRow(
        "limits.io",
        "limits.io",
        _SIZE._replace(convert=least(4096)),
        "bytes per second, read and written each, of a command",
        "50MB",
        stricter=min,
    ),
    SettingRow("limits.open_files", "limits.open_files", _COUNT, "open files of each process", "1000", stricter=min),
    SettingRow(
        "limits.file_size", "limits.file_size", _SIZE, "size of a file that a command writes", "1 GiB", stricter=min
    ),
    SettingRow(
        "limits.total_memory",
        "limits.total_memory",
        _SIZE._replace(convert=least(4 << 20)),
        "memory of all commands of the project together",
        "8 GiB",
        stricter=min,
    ),
    SettingRow(
        "limits.total_processes",
        "limits.total_processes",
        _COUNT,
        "processes of all commands of the project together",
        "2000",
        stricter=min,
    ),
    SettingRow(
        "limits.total_cpus",
        "limits.total_cpus",
        _PROCESSORS,
        "processor time of all commands of the project together",
        "3",
        stricter=min,
    ),
    SettingRow(
        "limits.missing",
        "limits.missing",
        _choices("refuse", "degrade"),
        "a limit that cannot be enforced here: refuse the command, or run it with a note",
        "degrade",
        stricter=_strictest("degrade", "refuse"),
        loosening=_is("degrade"),
    ),
    SettingRow(
        "levels.default",
        "levels.default",
        _LEVEL,
        "level of agents whose cards name none",
        "2",
        stricter=max,
        loosening=_is(0),
        unset="that of run.level",
    ),
    SettingRow("levels.minimum", "levels.minimum", _LEVEL, "minimum level; a lower one is raised", "1", stricter=max),
    SettingRow(
        "levels.allow", "levels.allow", _LEVEL_LIST, "allowed levels; others are refused", "[1, 2]", stricter=_common
    ),
    SettingRow(
        "levels.agents",
        "levels.agents",
        _AGENT_LEVELS,
        "minimum level of an agent",
        "{some-tool: refuse}",
        stricter=_strictest(*LEVELS, REFUSE),
    ),
    SettingRow(
        "container.engine",
        "engine",
        _choices("auto", "docker", "podman", "container"),
        "container engine of level 2; auto: the first that answers",
        "podman",
        loosening=_ANY,
    ),
    SettingRow("container.image", "image", _IMAGE, "image of containers", "debian:bookworm", loosening=_ANY),
    SettingRow(
        "container.cards",
        "image_cards",
        _AGENTS,
        "agents whose cards may name the image",
        "[some-tool]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow("container.warm", "warm", _WARM, "spare containers that a session keeps ready", "2", loosening=_ANY),
    SettingRow(
        "secrets.mask",
        "secrets_mask",
        _NAMES,
        "further file names that are shown empty, beside those that look like secrets",
        '["*.sqlite"]',
        adds=True,
        tightens=True,
    ),
    SettingRow(
        "secrets.show", "secrets_show", _NAMES, "secrets that commands may read", "[.env]", loosening=_ANY, adds=True
    ),
    SettingRow(
        "credentials.show",
        "credentials",
        _HOME_FILES,
        "files of the home directory that commands may read",
        "[~/.netrc]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "copy.limit",
        "copy_limit",
        _SIZE,
        "size of a staged copy",
        "200MB",
        stricter=min,
        loosening=_more_than(_DEFAULTS.copy_limit),
    ),
    SettingRow(
        "copy.exclude",
        "copy_exclude",
        _texts(_patterns),
        "paths that a staged copy leaves out, as in gitignore(5)",
        "[node_modules/.cache]",
        adds=True,
    ),
    SettingRow(
        "copy.gitignore", "copy_gitignore", _FLAG, "leave out ignored files even if the copy has room for them", "true"
    ),
    SettingRow(
        "verify.command",
        "verify",
        _COMMAND,
        "must succeed on a merged result before it is written",
        "make test",
        loosening=_ANY,
        own_first=True,
    ),
    SettingRow(
        "verify.when",
        "verify_when",
        _choices("merged", "always", "never"),
        "when to verify; merged: if files were merged or conflicts resolved",
        "always",
        stricter=_strictest("never", "merged", "always"),
        loosening=_is("never"),
    ),
    SettingRow("verify.timeout", "verify_timeout", _TIME, "the verify command is killed after this time", "10m"),
    SettingRow(
        "keep.age",
        "keep_age",
        _TIME,
        "older applies and automatic checkpoints are removed",
        "90d",
        stricter=max,
        loosening=_less_than(_DEFAULTS.keep_age, "30 days"),
    ),
    SettingRow(
        "keep.applies",
        "keep_applies",
        _COUNT,
        "applies that can be undone, and automatic checkpoints of each fork",
        "100",
        stricter=max,
        loosening=_less_than(_DEFAULTS.keep_applies, f"{_DEFAULTS.keep_applies}"),
    ),
    SettingRow(
        "keep.journal",
        "keep_journal",
        _SIZE._replace(convert=least(100_000)),
        "size of the journal beyond which older events move to an archive",
        "32MB",
    ),
    SettingRow("keep.journal_age", "keep_journal_age", _TIME, "older events of the journal move to an archive", "30d"),
    SettingRow(
        "keep.bytes",
        "keep_bytes",
        _SIZE,
        "disk space of undo data; the oldest is removed first",
        "10GB",
        stricter=max,
        loosening=_less_than(_DEFAULTS.keep_bytes, show_size(_DEFAULTS.keep_bytes)),
    ),
    SettingRow(
        "commands.classes",
        "commands",
        _CLASSES,
        "verdicts for the classes of agents' commands",
        "{destructive: require_approval}",
        stricter=stricter_action,
        loosening=_BY_CLASS,
    ),
    SettingRow(
        "commands.rules",
        "commands",
        _RULES,
        "verdicts for agents' commands by their first words",
        "[{pattern: git push --force, action: deny}]",
        loosening=_BY_ACTION,
        adds=True,
        tightens=True,
    ),
    SettingRow(
        "commands.background",
        "background",
        _choices("allow", "require_approval", "deny"),
        "commands that go on in the background",
        "require_approval",
        stricter=stricter_action,
    ),
    SettingRow(
        "commands.approval_timeout",
        "approval_timeout",
        _TIME,
        "a question without an answer in this time is a denial",
        "10m",
    ),
    SettingRow(
        "user_commands.sandbox",
        "user_level",
        _LEVEL,
        "level of the user's own commands",
        "1",
        stricter=max,
        loosening=_is(0),
        unset="that of run.level",
    ),
    SettingRow(
        "user_commands.auto_apply",
        "auto_apply",
        _choices("never", "trusted", "always"),
        "apply after success without a question; trusted: commands of user_commands.trusted",
        "trusted",
        stricter=_strictest("always", "trusted", "never"),
        loosening=_is("trusted", "always"),
    ),
    SettingRow(
        "user_commands.auto_apply_trusted",
        "auto_apply_trusted",
        _FLAG,
        "same as auto_apply: trusted",
        "true",
        loosening=_is(True),
    ),
    SettingRow(
        "user_commands.auto_apply_flagged",
        "auto_apply_flagged",
        _FLAG,
        "also apply files that run by themselves later without a question",
        "true",
        stricter=_both,
        loosening=_is(True),
    ),
    SettingRow(
        "user_commands.trusted",
        "trusted",
        _WORDS,
        "first words of commands",
        "[npm ci, make format]",
        loosening=_ANY,
        adds=True,
    ),
    SettingRow(
        "user_commands.show_diff_threshold",
        "show_diff_threshold",
        _LINES,
        "a diff with at most this number of lines is shown at once",
        "20",
    ),
)
"""All settings, in the order of the reference. The keys of ``roles`` and ``agents`` are chosen by users
(``policy/parse.py``)."""
SECTIONS: dict[str, dict[str, SettingRow]] = {}
for _row in ROWS:
    SECTIONS.setdefault(_row.key.partition(".")[0], {})[_row.name] = _row
