"""Setting types: the check of a value, its JSON Schema, and how a default is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from mudroom.core.agent.sandbox_level import LEVELS, REFUSE
from mudroom.core.command.policy import BY_CLASS
from mudroom.core.confinement.container import HOST, name_error
from mudroom.core.confinement.limit import OFF, parse_size, show_size
from mudroom.core.settings import StartCommand
from mudroom.core.tree.path import show
from mudroom.core.tree.pattern import pattern_error
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.network.fork_host import AgentLink
    from mudroom.core.network.fork_rule import ForkRule

LONGEST = 100 * 366 * 86400.0
"""Seconds: a hundred years. In nanoseconds it fits a 64-bit number by far."""
MOST_WARM = 8
"""Containers. Each takes some megabytes of memory, and delays other starts by its own."""
_SHOWN = 80
"""Maximum characters that a message shows from a value."""


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


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


_PAUSES = {"always": LONGEST, "never": 0.0}


def _pause(value: Any, where: str) -> float:
    """Return seconds: a time, or one of the words above."""
    return _PAUSES[value] if value in _PAUSES else seconds(value, where)


def size(value: Any, where: str) -> int:
    """Return bytes from a number, or a text such as 500MB, 2 GiB."""
    length = None if isinstance(value, bool) else parse_size(str(value))
    if length is None:
        raise UsageError(f"{where} is {shown(value)}, which is not a size", "write bytes, or 500MB, 2GB")
    return length


def least(smallest: int) -> Callable[[Any, str], int]:
    """Return a check for sizes. At least ``smallest`` bytes: with less, no command can run."""

    def convert(value: Any, where: str) -> int:
        length = size(value, where)
        if length < smallest:
            raise UsageError(
                f"{where} is {shown(value)}", f"at least {show_size(smallest)}: with less, nothing can run"
            )
        return length

    return convert


def or_off(convert: Callable[[Any, str], float]) -> Callable[[Any, str], float]:
    """Return a check that also takes ``none``, which switches the limit off."""

    def check(value: Any, where: str) -> float:
        return OFF if value == "none" else convert(value, where)

    return check


def count(value: Any, where: str) -> int:
    """Return a whole number from 1 on; a text is converted."""
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal():
        value = int(value)
    return _count(value, where)


def processors(value: Any, where: str) -> float:
    """Return processor time in processors: 0.5, 2."""
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
    """Return a command. A text is a line for this system's shell; a list holds the command's words."""
    words = _strings([value] if isinstance(value, str) else value, where)
    if not words or not words[0].strip():
        raise UsageError(f"{where} is empty", 'write a command: "make test", or [make, test]')
    return shell_command(words[0], where) if isinstance(value, str) else tuple(words)


def _start(value: Any, where: str) -> tuple[StartCommand, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{where} must be a list of commands", "[{run: make serve, ready: 8000}]")
    return tuple(_start_command(item, f"{where}, command {number}") for number, item in enumerate(value, 1))


def _start_command(value: Any, where: str) -> StartCommand:
    if not isinstance(value, dict):
        return StartCommand(_command(value, where))
    if "run" not in value or value.keys() - {"run", "ready"}:
        raise UsageError(f"{where} must have run, and may have ready", "{run: make serve, ready: 8000}")
    argv, ready = _command(value["run"], f"{where}, run"), value.get("ready", 0)
    if isinstance(ready, bool) or not isinstance(ready, int):
        return StartCommand(argv, ready=_command(ready, f"{where}, ready"))
    if "ready" in value and not 0 < ready < 1 << 16:
        raise UsageError(f"{where}, ready is {ready}, which is not a port", "from 1 to 65535, or a command")
    return StartCommand(argv, ready)


def shell_command(text: bytes, where: str, platform: str = sys.platform) -> tuple[bytes, ...]:
    """Return the command that runs a line in the shell on ``platform``."""
    from mudroom.core.system.shell import shell_words

    if platform == "win32":
        text = text.strip()  # a YAML block ends with a line break
        if b"\n" in text or b"\r" in text:
            hint = "join them with &&, or name a script as a list: [python, check.py]"
            raise UsageError(f"{where} has several lines, and cmd.exe reads one", hint)
    return (*shell_words(b"/bin/sh", platform), text)


def _names(value: Any, where: str) -> tuple[bytes, ...]:
    return tuple(_strings(value, where))


def _agents(value: Any, where: str) -> tuple[str, ...]:
    names = tuple(name.decode() for name in _strings(value, where))
    for name in names:
        if any(sign in name for sign in "*?[]"):
            raise UsageError(f"{where}: {name!r} is no name of an agent", "name each agent")
    return names


def _links(value: Any, where: str) -> tuple[AgentLink, ...]:
    from mudroom.core.network.fork_host import parse_link

    links = []
    for name in _strings(value, where):
        try:
            links.append(parse_link(os.fsdecode(name)))
        except ValueError as error:
            raise UsageError(f"{where}: {error}", "two forks: planner -> coder, planner -> coder:8080") from error
    return tuple(links)


def _forks(value: Any, where: str) -> tuple[ForkRule, ...]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} must have show and reach", '{show: [8000], reach: ["reviewer:8000"]}')
    return tuple(rule for side, rules in value.items() for rule in fork_rules(rules, str(side), f"{where}.{side}"))


def fork_rules(value: Any, side: str, where: str) -> list[ForkRule]:
    from mudroom.core.network.fork_rule import FORMS, SIDES, parse_forks

    try:
        return parse_forks(value, side)
    except ValueError as error:
        forms = [f"{name}: [{FORMS[name]}]" for name in SIDES if side not in SIDES or name == side]
        raise UsageError(f"{where}: {error}", ", ".join(forms)) from error


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
    """Return gitignore(5) patterns. Raise UsageError for a pattern that can match no path."""
    patterns = _strings(value, where)
    for pattern in patterns:
        if wrong := pattern_error(pattern):
            hint = "a name, *.log, or a path from the project on: /build/"
            raise UsageError(f"{where}: {show(pattern)!r} {wrong}", hint)
    return tuple(patterns)


def _files(value: Any, where: str) -> tuple[bytes, ...]:
    """Return patterns of which each adds files: one that takes some away would undo another file's."""
    patterns = _patterns(value, where)
    for pattern in patterns:
        if pattern.startswith(b"!"):
            raise UsageError(f"{where}: {show(pattern)}: no pattern here takes files away", "name those that are meant")
    return patterns


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
    """Return an image name, or ``host``."""
    wrong = name_error(value) if isinstance(value, str) else "is not the name of an image"
    if wrong:
        name = f" {shown(value)}" if value != "" else ""
        raise UsageError(f"{where}:{name} {wrong}", f"write {HOST}, or a name as debian:bookworm")
    return str(value)


def agent_level(value: Any, where: str) -> int:
    """Return the minimum level for an agent, or REFUSE."""
    return REFUSE if value == "refuse" else _level(value, where)


# --- types ---


class ValueType(NamedTuple):
    convert: Callable[[Any, str], Any]
    """Check and convert a value as parsed from YAML; the second argument is its position. Raises UsageError."""
    schema: dict[str, Any]
    """JSON Schema for the value in the file."""
    form: str = ""
    """How to write a value, if the help does not say it."""
    show: Callable[[Any], str] = str
    """Return a default for display."""
    unset: str = "none"
    """Shown for a default of None or an empty list."""


def _show_time(value: float) -> str:
    factor, unit = next((f, u) for f, u in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")) if not value % f)
    return f"{value / factor:.0f}{unit}"


def choices(*allowed: str) -> ValueType:
    return ValueType(_choice(*allowed), {"enum": list(allowed)})


def _texts(convert: Callable[[Any, str], Any], **item: Any) -> ValueType:
    return ValueType(convert, {"type": "array", "items": {"type": "string", **item}})


_LINE = {"type": "string", "minLength": 1, "pattern": "^[^\\n\\r]*$"}
_NO_LIMIT = "no limit"
FLAG = ValueType(_flag, {"type": "boolean"}, show=lambda value: "true" if value else "false")
COUNT = ValueType(_count, {"type": "integer", "minimum": 1, "maximum": (1 << 31) - 1}, unset=_NO_LIMIT)
PROCESSORS = ValueType(processors, {"type": ["number", "string"]}, unset=_NO_LIMIT)
TIME = ValueType(
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
PAUSE = TIME._replace(
    convert=_pause,
    schema={"anyOf": [*TIME.schema["anyOf"], {"enum": [*_PAUSES]}]},
    form="seconds, or 90s, 5m, 1h; always: until it ends; never: not at all",
    show=lambda value: next((word for word, known in _PAUSES.items() if known == value), "") or _show_time(value),
)
SIZE = ValueType(
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
LEVEL = ValueType(_level, _LEVEL_SCHEMA, "0: staged view only; 1: OS sandbox; 2: container")
LEVEL_LIST = ValueType(
    _levels, {"type": "array", "minItems": 1, "items": _LEVEL_SCHEMA}, show=lambda levels: str(list(levels))
)
AGENT_LEVELS = ValueType(
    agent_level, {"type": "object", "additionalProperties": {"enum": [*LEVELS, "refuse"]}}, "agentId: level, or refuse"
)
MODE = ValueType(
    _choice("none", "gate", "open"),
    {"enum": ["none", "gate", "open"]},
    "gate: allowed hosts only; none: no network; open: the host's network",
    lambda mode: "gate; at level 0 open" if mode == "auto" else str(mode),
)
HOSTS = ValueType(_names, {"type": "array", "items": {"type": "string"}}, 'NAME[:PORT,…]; "*.example.com" in quotes')
PRESETS = ValueType(_names, {"type": "array", "items": {"$ref": "#/$defs/preset"}})
INSPECTED = ValueType(_names, {"type": "array", "items": {"$ref": "#/$defs/inspect"}})
ENVIRONMENT = _texts(_environment, pattern="^[^=]")._replace(form="NAME or NAME=VALUE")
PATHS = _texts(_absolute, pattern="^/.")
HOME_FILES = _texts(_in_home, pattern="^~/.")
FILES = _texts(_files, pattern="^[^!#]")
AGENTS = _texts(_agents)
LINKS = _texts(_links, pattern="->")._replace(form="FORK -> FORK[:PORT]")
_FORKS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "show": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": 65535},
                    {"type": "string", "pattern": "^([a-z0-9][a-z0-9-]*[*]?:)?[1-9][0-9]{0,4}(/http)?$"},
                ]
            },
        },
        "reach": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": "^[a-z0-9][a-z0-9-]*[*]?(@[A-Za-z0-9_.:@/-]+)?(:[1-9][0-9]{0,4})?$",
            },
        },
    },
}
FORKS = ValueType(
    _forks,
    _FORKS_SCHEMA,
    "show: [PORT, PORT/http, FORK:PORT], reach: [FORK:PORT, FORK@AGENT:PORT]",
)
IMAGE = ValueType(
    image,
    _LINE | {"pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"},
    "host: the host's own toolchain; or the name of a local image, never pulled",
    unset=f"{HOST}, or the image of an agent card",
)
WARM = ValueType(_few, {"type": "integer", "minimum": 0, "maximum": MOST_WARM})
LINES = ValueType(_number, {"type": "integer", "minimum": 0})
COMMAND = ValueType(
    _command,
    {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]},
    "a text for the shell, or a list of words",
)
_LINE_OR_WORDS = COMMAND.schema["anyOf"]
_READY = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, *_LINE_OR_WORDS]}
_PROPERTIES = {"run": COMMAND.schema, "ready": _READY}
_STARTED = {"type": "object", "required": ["run"], "additionalProperties": False, "properties": _PROPERTIES}
START = ValueType(
    _start,
    {"type": "array", "items": {"anyOf": [*_LINE_OR_WORDS, _STARTED]}},
    "COMMAND, or {run: COMMAND, ready: PORT or COMMAND}; a COMMAND is a text for the shell, or a list of words",
)
CLASSES = ValueType(
    _names,  # read by policy/command_rules.py
    {"$ref": "#/$defs/classes"},
    "CLASS: ACTION",
    lambda _policy: ", ".join(f"{name}: {action}" for name, action in BY_CLASS.items()),
)
RULES = ValueType(
    _names,  # read by policy/command_rules.py
    {"type": "array", "items": {"$ref": "#/$defs/rule"}},
    show=lambda _policy: "none",
)
WORDS = ValueType(_names, {"type": "array", "items": _LINE})
PATTERNS = _texts(_patterns)


def size_from(smallest: int) -> ValueType:
    """Return the type for sizes with a lower limit, in bytes."""
    return SIZE._replace(convert=least(smallest))


def with_off(value_type: ValueType) -> ValueType:
    """Return the type for a limit that has a default, which ``none`` switches off."""
    form = f"{value_type.form or 'a number'}; none: switched off"
    schema = {"anyOf": [*value_type.schema.get("anyOf", [value_type.schema]), {"enum": ["none"]}]}
    return value_type._replace(
        convert=or_off(value_type.convert),
        schema=schema,
        form=form,
        show=lambda value: "none" if value == OFF else value_type.show(value),
    )
