"""What a launcher has said, read without trusting it: a launcher in a container is next to commands.

The reader of ``marshal`` is none (its documentation: "never unmarshal data received from an untrusted or
unauthenticated source"): it can be made to crash the interpreter. This one knows the few kinds of values that launchers
report, and nothing else.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

_DEEPEST = 8
_FLAG_REF = 0x80
"""Python/marshal.c: an object that later ones may refer to by its number, in the order in which they begin."""
_PENDING = object()


class ReportError(ValueError):
    """It is not what a launcher says."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._known: list[Any] = []

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise ReportError("cut off")
        self._at += count
        return found

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little", signed=width > 1)

    @property
    def is_done(self) -> bool:
        return self._at == len(self._data)

    def value(self, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ReportError("too deep")
        code = self.take(1)[0]
        kind, named = chr(code & ~_FLAG_REF), code & _FLAG_REF
        if kind == "r":
            return self._referred(self.number(4))
        if kind not in _KINDS:
            raise ReportError(f"an unknown kind of value: {kind!r}")
        number = len(self._known)
        if named:
            self._known.append(_PENDING)
        found = _KINDS[kind](self, depth)
        if named:
            self._known[number] = found
        return found

    def _referred(self, number: int) -> Any:
        if not 0 <= number < len(self._known) or self._known[number] is _PENDING:
            raise ReportError("a reference to nothing")
        return self._known[number]


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
            raise ReportError("a text that is none") from error

    return read


def _sized(reader: _Reader, width: int) -> bytes:
    count = reader.number(width)
    if count < 0:
        raise ReportError("a negative length")
    return reader.take(count)


def _long(reader: _Reader, _depth: int) -> int:
    """Digits of 15 bits; the sign is that of their count."""
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
"""By the type codes of Python/marshal.c. A list is read as a tuple: reports are tuples."""


_SHAPES: dict[str, tuple[type, ...]] = {
    "exited": (int, float, float, int, tuple, bool),
    "failed": (int, str, int, str),
    "prepared": (),
    "ready": (),
    "done": (),
}
"""What comes after the word: see the head of ``sandbox/launcher/launcher.py``."""


def read_report(data: bytes) -> tuple[Any, ...]:
    """One record: a tuple that begins with a word. Raises ReportError for anything else, and nothing but that."""
    reader = _Reader(data)
    found = reader.value()
    if not reader.is_done or not isinstance(found, tuple) or not found or not isinstance(found[0], str):
        raise ReportError("no record")
    return found


def read_record(data: bytes) -> tuple[Any, ...]:
    """A record as a run, a held sandbox or a template reports it. Raises ReportError."""
    found = read_report(data)
    kinds = _SHAPES.get(found[0])
    if kinds is None or len(found) != 1 + len(kinds) or not all(map(isinstance, found[1:], kinds)):
        raise ReportError(f"no record of a launcher: {found[0]!r}")
    return found
