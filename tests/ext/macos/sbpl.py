"""The language of Seatbelt profiles, as far as it is needed to say what a profile decides: a reader and an evaluator.

Strict where Apple's is, and stricter: an operation or a filter that is not in the tables here is an error. So a profile
that mudroom writes has nothing in it that these tables, made from profiles in use, do not know.

    profile = parse(text)
    profile.allows("file-read-data", path=b"/usr/lib/libz.dylib")

Semantics: several filters in one rule are alternatives; ``file-read*`` stands for all operations that begin so. Which
of the matching rules decides is not documented, and measurements on Macs differ ("Apple Sandbox Guide" 1.0 and Blazakis
2011: the last; later ones: a rule that names the operation before one that reaches it by a wildcard; a rule with a
filter before one without). ``READINGS`` has them all, and ``allows`` is an error where they disagree: a profile must
not depend on one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

OPERATIONS = frozenset((
    "default", "file-read-data", "file-read-metadata", "file-read-xattr", "file-write-data", "file-write-create",
    "file-write-unlink", "file-write-mode", "file-write-owner", "file-write-flags", "file-write-times",
    "file-write-xattr", "file-write-setugid", "file-ioctl", "file-link", "file-clone", "file-map-executable",
    "file-test-existence",
    "file-mount", "process-exec", "process-exec-interpreter", "process-fork", "process-info-pidinfo",
    "process-info-setcontrol", "process-info-listpids", "process-info-codesignature", "signal", "sysctl-read",
    "sysctl-write", "mach-lookup", "mach-register", "mach-priv-task-port", "mach-priv-host-port", "ipc-posix-sem",
    "ipc-posix-shm-read-data", "ipc-posix-shm-read-metadata", "ipc-posix-shm-write-data",
    "ipc-posix-shm-write-create", "ipc-posix-shm-write-unlink", "ipc-sysv-shm", "pseudo-tty", "network-outbound",
    "network-inbound", "network-bind", "system-socket", "iokit-open", "iokit-get-properties", "nvram-get",
    "nvram-set", "user-preference-read", "user-preference-write", "lsopen", "appleevent-send", "job-creation",
    "distributed-notification-post", "forbidden-exec-sugid", "system-fsctl", "authorization-right-obtain",
    "dynamic-code-generation", "mach-host-exception-port-set", "mach-host-special-port-set",
))  # fmt: skip
DEFAULT_ALLOWED = ("process-info", "nvram", "iokit-get-properties", "file-map-executable")
"""Operations that ``(deny default)`` leaves open, according to Firefox's profile (SandboxPolicyContent.h)."""
NAMES = {
    "global-name": "name",
    "sysctl-name": "name",
    "ipc-posix-name": "name",
    "socket-domain": "domain",
    "extension": "extension",
}


class MalformedError(ValueError):
    pass


class AmbiguousError(ValueError):
    """The readings of the language disagree about an operation."""


class Symbol(str):
    __slots__ = ()


class Regex(NamedTuple):
    pattern: bytes


_TOKEN = re.compile(rb'\s+|;[^\n]*|(\()|(\))|#"((?:[^"\\]|\\.)*)"|"((?:[^"\\]|\\.)*)"|([^\s()";]+)', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def _unescape(word: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(found[1], found[1]), word)


def read(text: bytes) -> list[Any]:
    """Expressions: lists of lists, symbols, and strings (bytes)."""
    stack: list[list[Any]] = [[]]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise MalformedError(f"cannot read at {at}: {text[at : at + 20]!r}")
        at = found.end()
        opening, closing, regex, string, symbol = found.groups()
        if opening:
            stack.append([])
        elif closing:
            if len(stack) == 1:
                raise MalformedError("a ) too many")
            done = stack.pop()
            stack[-1].append(done)
        elif regex is not None:
            stack[-1].append(Regex(regex))
        elif string is not None:
            stack[-1].append(_unescape(string))
        elif symbol is not None:
            stack[-1].append(Symbol(symbol.decode("ascii")))
    if len(stack) != 1:
        raise MalformedError("a ) is missing")
    return stack[0]


class Rule(NamedTuple):
    allows: bool
    operations: tuple[str, ...]
    filters: tuple[Any, ...]


READINGS: dict[str, Callable[[bool, bool], tuple[bool, ...]]] = {
    "last": lambda _named, _filtered: (),
    "operation": lambda named, _filtered: (named,),
    "filter": lambda _named, filtered: (filtered,),
    "operation, filter": lambda named, filtered: (named, filtered),
    "filter, operation": lambda named, filtered: (filtered, named),
}
"""Precedence of a rule: whether it names the operation itself, and whether it has a filter. Among equals the last one
decides."""


class Profile(NamedTuple):
    rules: tuple[Rule, ...]

    def allows(self, operation: str, **context: Any) -> bool:
        """Return the decision. Raise AmbiguousError if it depends on the reading."""
        verdicts = {name: self.decide(name, operation, **context) for name in READINGS}
        if len(set(verdicts.values())) != 1:
            raise AmbiguousError(f"{operation} {context}: {verdicts}")
        return verdicts["last"]

    def decide(self, reading: str, operation: str, **context: Any) -> bool:
        if operation not in OPERATIONS:
            raise KeyError(operation)
        key, matching = READINGS[reading], []
        for number, rule in enumerate(self.rules):
            names = [one for one in rule.operations if _covers(one, operation)]
            if names and (not rule.filters or any(matches(one, context) for one in rule.filters)):
                matching.append((key(operation in names, bool(rule.filters)), number, rule.allows))
        return max(matching)[2] if matching else operation.startswith(DEFAULT_ALLOWED)

    def paths(self) -> Iterator[bytes]:
        """Every path that a filter names."""
        pending: list[Any] = [one for rule in self.rules for one in rule.filters]
        while pending:
            one = pending.pop()
            if isinstance(one, list):
                if one[0] in ("literal", "subpath"):
                    yield one[1]
                pending += one[1:]


def _covers(pattern: str, operation: str) -> bool:
    if pattern == "default":
        return False  # decided before all others, and so by ``verdict``
    return operation.startswith(pattern[:-1]) if pattern.endswith("*") else operation == pattern


def matches(one: Any, context: dict[str, Any]) -> bool:
    kind, *rest = one
    path = context.get("path")
    match kind:
        case "literal":
            return bool(path == rest[0])
        case "subpath":
            return path is not None and (path == rest[0] or path.startswith(rest[0].rstrip(b"/") + b"/"))
        case "regex":
            return path is not None and re.search(rest[0].pattern, path) is not None
        case "require-all":
            return all(matches(each, context) for each in rest)
        case "require-any":
            return any(matches(each, context) for each in rest)
        case "require-not":
            return not matches(rest[0], context)
        case "target":
            inside = {"self": ("self",), "same-sandbox": ("self", "same-sandbox"), "others": ("others",)}
            return context.get("target") in inside[rest[0]]
        case "sysctl-name-prefix" | "ipc-posix-name-prefix":
            return str(context.get("name", "")).startswith(rest[0].decode())
        case "remote" | "local":
            return _of_socket(kind, rest, context)
    if kind in NAMES:
        return any(_same(context.get(NAMES[kind]), each) for each in rest)
    raise MalformedError(f"no such filter: {kind}")


def _same(value: Any, wanted: Any) -> bool:
    return value is not None and value == (wanted.decode() if isinstance(wanted, bytes) else wanted)


def _of_socket(kind: str, rest: list[Any], context: dict[str, Any]) -> bool:
    """``remote`` and ``local``: context has ``path`` for a unix socket, or ``protocol``, ``host`` and ``port``."""
    protocol, place = rest[0], rest[1:]
    if protocol == "unix-socket":
        return "path" in context and all(matches(each, context) for each in place)
    if "host" not in context or (protocol != "ip" and protocol != context["protocol"]):
        return False
    host, _colon, port = place[0].decode().rpartition(":")
    if host not in ("*", "localhost"):
        raise MalformedError(f"a host is * or localhost, not {host}")  # sandbox-exec says so, too
    is_local = context["host"] in ("127.0.0.1", "::1", "localhost")
    return (host == "*" or is_local) and (port == "*" or int(port) == context["port"])


def parse(text: bytes) -> Profile:
    forms = read(text)
    if not forms or forms[0][:1] != ["version"]:
        raise MalformedError("(version 1) is missing")
    rules = []
    for form in forms[1:]:
        if isinstance(form, list) and form[:1] == ["if"]:
            form = _defined(form)
        if not isinstance(form, list) or form[0] not in ("allow", "deny"):
            raise MalformedError(f"no rule: {form!r}")
        operations = tuple(str(one) for one in form[1:] if isinstance(one, Symbol))
        filters = tuple(one for one in form[1:] if not isinstance(one, Symbol))
        for one in operations:
            if not any(_covers(one, known) or one == known for known in OPERATIONS):
                raise MalformedError(f"unbound variable: {one}")
        for one in filters:
            _check(one)
        if not operations:
            raise MalformedError(f"a rule without an operation: {form!r}")
        rules.append(Rule(form[0] == "allow", operations, filters))
    if not rules or rules[0] != Rule(False, ("default",), ()):
        raise MalformedError("(deny default) does not come first")
    return Profile(tuple(rules))


def _defined(form: list[Any]) -> Any:
    """Return the rule of ``(if (defined? 'operation) rule)``. All operations are known here."""
    match form:
        case ["if", ["defined?", str() as name], rule] if name[:1] == "'" and name[1:] in OPERATIONS:
            return rule
    raise MalformedError(f"no condition: {form!r}")


def _check(one: Any) -> None:
    """A filter that cannot be evaluated is found when the profile is read, not when it is asked."""
    if not isinstance(one, list) or not one:
        raise MalformedError(f"no filter: {one!r}")
    everything: dict[str, Any] = {"path": b"/x", "target": "self", "host": "127.0.0.1", "protocol": "tcp", "port": 1}
    matches(one, everything)
    if one[0] in ("literal", "subpath") and not (isinstance(one[1], bytes) and one[1].startswith(b"/")):
        raise MalformedError(f"no absolute path: {one!r}")
