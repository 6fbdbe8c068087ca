"""Parser for a launcher's reports that does not trust them: a launcher in a container is next to commands.

``marshal.loads`` is unsafe here (its documentation: "never unmarshal data received from an untrusted or unauthenticated
source"): crafted data can crash the interpreter. This parser accepts only the few value types that launchers report.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable

from mudroom.errors import MudroomError
from mudroom.typing import Any

_DEEPEST = 8
_FLAG_REF = 0x80
"""Python/marshal.c: marks an object that later objects may refer to by its number. Objects are numbered in the order in
which they begin."""
_PENDING, _END = object(), object()


class ReportError(ValueError):
    """The data is not a valid launcher report."""


class _Reader:
    """Owner: the caller. An object lives within one call."""

    def __init__(self, data: bytes, kinds: dict[str, Callable[[_Reader, int], Any]]) -> None:
        self._data, self._at, self._kinds = data, 0, kinds
        self._objects: list[Any] = []

    def take(self, count: int) -> bytes:
        data = self._data[self._at : self._at + count]
        if len(data) != count:
            raise ReportError("cut off")
        self._at += count
        return data

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little", signed=width > 1)

    @property
    def is_done(self) -> bool:
        return self._at == len(self._data)

    def value(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ReportError("too deep")
        code = self.take(1)[0]
        kind, is_referable = chr(code & ~_FLAG_REF), code & _FLAG_REF
        if kind == "r":
            return self._resolve_reference(self.number(4))
        if kind not in self._kinds:
            raise ReportError(f"an unknown kind of value: {kind!r}")
        number = len(self._objects)
        if is_referable:
            self._objects.append(_PENDING)
        value = self._kinds[kind](self, depth)
        if is_referable:
            self._objects[number] = value
        return value

    def _resolve_reference(self, number: int) -> Any:
        if not 0 <= number < len(self._objects) or self._objects[number] is _PENDING:
            raise ReportError("a reference to an unknown object")
        return self._objects[number]


def _sequence(width: int) -> Callable[[_Reader, int], tuple[Any, ...]]:
    def read(reader: _Reader, depth: int) -> tuple[Any, ...]:
        count = reader.number(width)
        if count < 0:
            raise ReportError("a negative length")
        return tuple(reader.value(depth + 1) for _ in range(count))

    return read


def _text(width: int, encoding: str) -> Callable[[_Reader, int], str]:
    def read(reader: _Reader, _depth: int) -> str:
        try:
            return _sized(reader, width).decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError as error:
            raise ReportError("a text that cannot be decoded") from error

    return read


def _sized(reader: _Reader, width: int) -> bytes:
    count = reader.number(width)
    if count < 0:
        raise ReportError("a negative length")
    return reader.take(count)


def _mapping(reader: _Reader, depth: int) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    while (key := reader.value(depth + 1)) is not _END:
        if not isinstance(key, (bytes, str)):
            raise ReportError("a key that is no word")
        values[key] = reader.value(depth + 1)
    return values


def _long(reader: _Reader, _depth: int) -> int:
    """Read an integer from 15 bit digits. The sign is that of their count."""
    count = reader.number(4)
    if abs(count) > 8:
        raise ReportError("a number that is too long")
    value = sum(reader.number(2) << (15 * place) for place in range(abs(count)))
    return -value if count < 0 else value


_KINDS: dict[str, Callable[[_Reader, int], Any]] = {
    "N": lambda _reader, _depth: None,
    "T": lambda _reader, _depth: True,
    "F": lambda _reader, _depth: False,
    "i": lambda reader, _depth: reader.number(4),
    "l": _long,
    "g": lambda reader, _depth: marshal.loads(b"g" + reader.take(8)),
    "s": lambda reader, _depth: _sized(reader, 4),
    "u": _text(4, "utf-8"),
    "t": _text(4, "utf-8"),
    "a": _text(4, "ascii"),
    "A": _text(4, "ascii"),
    "z": _text(1, "ascii"),
    "Z": _text(1, "ascii"),
    "(": _sequence(4),
    ")": _sequence(1),
    "[": _sequence(4),
}
"""Parsers by type code in Python/marshal.c. A list is read as a tuple: reports are tuples."""


_SHAPES: dict[str, tuple[type, ...]] = {
    "exited": (int, float, float, int, tuple, int, bool),
    "failed": (int, str, int, str),
    "prepared": (),
    "ready": (),
    "done": (),
}
"""Types after a record's first word: see ``src/native/launcher/launcher.c``."""


def read_value(data: bytes) -> Any:
    """Parse one value, which may be a mapping. Raise ReportError, and no other exception, for anything else. No count
    is believed: in ``marshal.loads``, five bytes take 16 GB."""
    reader = _Reader(data, {**_KINDS, "{": _mapping, "0": lambda _reader, _depth: _END})
    value = reader.value()
    if not reader.is_done:
        raise ReportError("more than one value")
    return value


def read_report(data: bytes) -> tuple[Any, ...]:
    """Parse one record: a tuple that begins with a word. Raise ReportError, and no other exception, for anything else.

    A failure is the first record of its run. A forked child that could not execute the command reports it, and init
    reports that child's end (``src/native/launcher/init.c``): both may have arrived, and the second adds nothing.
    """
    reader = _Reader(data, _KINDS)
    record = reader.value()
    if not isinstance(record, tuple) or not record or not isinstance(record[0], str):
        raise ReportError("no record")
    if not reader.is_done and record[0] != "failed":
        raise ReportError("more than one record")
    return record


def read_record(data: bytes) -> tuple[Any, ...]:
    """Parse a record about a run, a held sandbox or a template. Raise ReportError."""
    record = read_report(data)
    kinds = _SHAPES.get(record[0])
    if kinds is None or len(record) != 1 + len(kinds) or not all(map(isinstance, record[1:], kinds)):
        raise ReportError(f"no record of a launcher: {record[0]!r}")
    return record


class StepFailed(MudroomError):
    """A plan could not be performed; the command has not run. ``op`` is the step's, or ``clone`` or ``map_ids``."""

    def __init__(self, op: str, number: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.op = op
        self.number = number


def parse_report(data: bytes, read: Callable[[bytes], tuple[Any, ...]] = read_record) -> tuple[Any, ...]:
    """Parse a report. Raise MudroomError if it is not valid: a launcher in a container may be next to commands."""
    try:
        return read(data)
    except ReportError as error:
        raise MudroomError(
            f"the sandbox launcher sent an invalid report: {error}",
            "do not trust the contents of its fork: mudroom discard FORK",
        ) from error
