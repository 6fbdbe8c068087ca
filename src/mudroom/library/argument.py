"""Check library calls' arguments and convert them for a session. Raise UsageError, which says what was given and what
to write instead."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.system.shell import shell_words
from mudroom.core.tree.path import below_project, relpath, show
from mudroom.errors import UsageError
from mudroom.policy.config import environment
from mudroom.typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.network.push import PushRow

    StrPath: TypeAlias = str | os.PathLike[str]
    Word: TypeAlias = str | bytes | os.PathLike[str]
    CommandLine: TypeAlias = str | Sequence[Word]
    """A list is a program and its arguments. A string is a shell line: ``sh``, on Windows cmd.exe."""
    Effects: TypeAlias = str | PushRow | Sequence[str | PushRow]
    NetworkMode: TypeAlias = Literal["gate", "none", "open"]
    ViewMode: TypeAlias = Literal["auto", "overlay", "copy"]


def words_of(command: CommandLine) -> tuple[bytes, ...]:
    """Return a command's argv. A string becomes a shell command."""
    if isinstance(command, str):
        if not command.strip():
            raise UsageError("the command is empty", 'write a line ("make test") or a list (["make", "test"])')
        return (*shell_words(), word_of(command, "the command"))
    if isinstance(command, (bytes, os.PathLike)) or not isinstance(command, Sequence):
        shown = f"{type(command).__name__}: {command!r}"[:80]
        raise UsageError(
            f"a command is a line or a list, not {shown}", 'write a line ("make test") or a list (["make", "test"])'
        )
    if not command:
        raise UsageError("the command is an empty list", 'its first word is the program: ["make", "test"]')
    words = tuple(word_of(word, f"word {number} of the command") for number, word in enumerate(command, 1))
    if not words[0]:
        raise UsageError("the first word of the command is empty", 'it is the program: ["make", "test"]')
    return words


def word_of(word: object, where: str) -> bytes:
    if not isinstance(word, (str, bytes, os.PathLike)):
        raise UsageError(f"{where} is {word!r} ({type(word).__name__}), not a text", f"write {str(word)!r}")
    return _encoded(word, where)


def _encoded(text: Word, where: str) -> bytes:
    """Encode with surrogateescape (PEP 383), so that a name Python has read from a directory keeps its bytes."""
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} holds half a character at {error.start}, which no byte stands for") from None
    if b"\0" in raw:
        raise UsageError(f"{where} holds a NUL character, which no program or file name can have")
    return raw


def directory_of(path: object, where: str) -> bytes:
    """Return an absolute path. A relative one is taken from this process's working directory."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        hint = 'mudroom.open(".") is the project in the working directory'
        raise UsageError(f"{where} is {path!r}, not a path", hint if where == "the project" else "")
    raw = _encoded(path, where)
    if not raw:
        raise UsageError(f"{where} is an empty path", 'write "." for the working directory')
    try:
        return os.path.abspath(raw)
    except FileNotFoundError:
        raise UsageError("the working directory does not exist any more", "os.chdir to one that does") from None


def seconds_of(timeout: float | None, where: str = "timeout") -> float | None:
    """Return a time limit in seconds, or None for no limit."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise UsageError(f"{where} is {timeout!r}, not a number of seconds", f"{where}=60, or None for no limit")
    if not 0 < timeout <= 1e9:
        raise UsageError(f"{where} is {timeout!r}: no command can end in that", f"{where}=60, or None for no limit")
    return float(timeout)


def name_of(fork: str | None) -> str | None:
    """Return a fork's name, or None for a new fork. The vault checks the characters."""
    if fork is None or (isinstance(fork, str) and fork):
        return fork
    raise UsageError(f"a fork is named by a text, not {fork!r}", 'fork="a", or None for a new one')


def required_name(fork: str) -> str:
    if name_of(fork) is None:
        raise UsageError("no fork was named", "room.forks() lists them")
    return fork


def paths_of(paths: Word | Sequence[Word], project: bytes) -> list[bytes]:
    """Return checked project paths, absolute or relative. A single path may stand without a list. The project itself
    stands for all paths, as no path does."""
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    if not isinstance(given, Sequence):
        raise UsageError(f"paths is {paths!r}, not a path or a list of paths", 'paths=["src"]')
    words = [word_of(path, "a path") for path in given]
    if any(word and set(below_project(word, project).split(b"/")) <= {b"", b"."} for word in words):
        return []
    try:
        return [relpath(below_project(word, project)) for word in words]
    except ValueError as error:
        raise UsageError(str(error), f"the project is {show(project)}") from None


def effects_of(effects: Effects) -> list[str]:
    """Return the names of held effects. A row's name is bound to its content."""
    from mudroom.core.network.push import PushRow

    given = [effects] if isinstance(effects, (str, PushRow)) else effects
    if not isinstance(given, Sequence) or not all(isinstance(one, (str, PushRow)) for one in given):
        raise UsageError(f"effects is {effects!r}, not names or rows of effects", 'effects=["push:1"]')
    return [one if isinstance(one, str) else one.bound for one in given]


def environment_of(environ: Mapping[str, str] | None) -> Mapping[bytes, bytes]:
    """Return the environment that locates home, state and policy files. Default: this process's."""
    if environ is None:
        return environment()
    return dict(variables_of(environ, "environ"))


def variables_of(variables: Mapping[str, str], where: str) -> list[tuple[bytes, bytes]]:
    if not isinstance(variables, Mapping):
        raise UsageError(f"{where} is {variables!r}, not a mapping", f'{where}={{"NAME": "value"}}')
    pairs = [
        (word_of(name, f"a name of {where}"), word_of(value, f"{where}[{name!r}]")) for name, value in variables.items()
    ]
    for name, _value in pairs:
        if not name or b"=" in name:
            raise UsageError(f"{os.fsdecode(name)!r} is not a name of a variable", f'{where}={{"NAME": "value"}}')
    return pairs


def hosts_of(allow: Sequence[str], deny: Sequence[str]) -> tuple[HostRule, ...]:
    """Return the room's own host rules."""
    rules = []
    for action, hosts in (("allow", allow), ("deny", deny)):
        if isinstance(hosts, (str, bytes)) or not isinstance(hosts, Sequence):
            raise UsageError(f"{action} is {hosts!r}, not a list of hosts", f'{action}=["pypi.org"]')
        for host in hosts:
            from mudroom.core.network.host_rules import parse_rule

            try:
                rule = parse_rule(host, "allow" if action == "allow" else "deny", "mudroom.open")
            except (ValueError, TypeError, AttributeError) as error:
                raise UsageError(f"{action}: {error}", f'{action}=["pypi.org", "*.example.com:8443"]') from None
            rules.append(rule)
    return tuple(rules)


def require_known(call: str, options: Mapping[str, object], kind: type[object]) -> None:
    """Raise TypeError, as Python does, if an option is not a key in the TypedDict ``kind``."""
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
