"""Lines of the Agent Client Protocol as values: JSON-RPC 2.0, one message a line, UTF-8. Pure.

Rules of this file:

1. A message is passed on as the bytes that came. mudroom judges its own reading, and the other side acts on its own, so
   a line must mean the same to every reader. A line that readers take differently is refused: a name that occurs twice
   in an object (RFC 8259, section 4), or a JSON-RPC name in another case (Go's encoding/json takes ``Method`` for
   ``method``); NaN, or a number beyond doubles; bytes that are not UTF-8; a batch; a method beside a result; a carriage
   return within the line.
2. A refused line is answered, as JSON-RPC 2.0 (section 5.1) demands, if it was a request; the connection goes on.
3. Identifiers are compared as the loosest reader does: 1 and 1.0 are the same to JavaScript, whose numbers are doubles
   (RFC 8259, section 6), and "1" is a different identifier.
"""

from __future__ import annotations

import json
from contextlib import suppress

from mudroom.typing import Any, Literal, NamedTuple

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
NOT_FOUND = -32002
"""Resource not found (ACP schema v1, ``ErrorCode``)."""
CANCELLED = -32800
"""Request cancelled (the same)."""

MOST_BYTES = 64 << 20
"""Most bytes in a line. The SDKs end a connection at 32 MiB (npm) and 50 MiB (PyPI)."""
HEAD = 4096
"""Leading bytes of a longer line that are kept, to find its identifier."""

Kind = Literal["request", "notification", "response"]
Identifier = str | int | float | None


class AcpMessage(NamedTuple):
    raw: bytes
    """The line as it came, without its end."""
    body: dict[str, Any]

    @property
    def kind(self) -> Kind:
        if "method" not in self.body:
            return "response"
        return "request" if "id" in self.body else "notification"

    @property
    def method(self) -> str:
        """The method; empty for a response."""
        method: str = self.body.get("method", "")
        return method

    @property
    def id(self) -> Identifier:
        identifier: Identifier = self.body.get("id")
        return identifier

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name; empty if there are none, or they are a list."""
        params = self.body.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def result(self) -> dict[str, Any]:
        """A response's result; empty if it is an error, or not an object."""
        result = self.body.get("result")
        return result if isinstance(result, dict) else {}

    def with_params(self, params: dict[str, Any]) -> bytes:
        """Return the line with other parameters."""
        return line_of({**self.body, "params": params})


class Malformed(NamedTuple):
    """A line that is not a valid message."""

    code: int
    reason: str
    id: Identifier = None
    awaits: bool = True
    """Whether its sender waits for an answer. False: it is itself a response, so an error cannot be sent back."""


class _DifferentlyReadError(ValueError):
    pass


def parse(line: bytes) -> AcpMessage | Malformed:
    """Return a line's message. ``line``: without its end."""
    try:
        body = _decoder.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Malformed(PARSE_ERROR, f"the line is not UTF-8: byte {error.start}")
    except _DifferentlyReadError as error:
        return Malformed(INVALID_REQUEST, str(error))
    except RecursionError:
        return Malformed(PARSE_ERROR, "the line is nested too deeply")
    except ValueError as error:
        return Malformed(PARSE_ERROR, f"the line is no JSON: {error}")
    if not isinstance(body, dict):
        what = "a batch" if isinstance(body, list) else "no object"
        return Malformed(INVALID_REQUEST, f"the line is {what}; ACP has one message a line")
    return _checked(line, body)


_NAMES = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))


def _checked(line: bytes, body: dict[str, Any]) -> AcpMessage | Malformed:
    identifier = body.get("id")
    odd = next((name for name in body if name not in _NAMES and name.casefold() in _NAMES), None)
    if odd is not None:
        return Malformed(INVALID_REQUEST, f"the name {odd[:80]!r} is {odd.casefold()!r} to some readers")
    if isinstance(identifier, bool) or not isinstance(identifier, str | int | float | None):
        return Malformed(INVALID_REQUEST, "the id is neither text nor a number")
    is_answer = "result" in body or "error" in body
    if "method" in body and (is_answer or not isinstance(body["method"], str)):
        reason = "it has a method and a result" if is_answer else "the method is no text"
        return Malformed(INVALID_REQUEST, reason, identifier)
    if "method" not in body and ("id" not in body or not is_answer):
        return Malformed(INVALID_REQUEST, "it is neither a request nor an answer", identifier)
    if b"\r" in line:  # white space to JSON, the end of a line to some readers
        line = line_of(body)
    return AcpMessage(line, body)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DifferentlyReadError(f"the name {twice[:80]!r} occurs twice in an object")
    return made


def _constant(name: str) -> Any:
    raise _DifferentlyReadError(f"{name} is no number of JSON")


def _float(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise _DifferentlyReadError(f"{text[:80]} is beyond the numbers of most readers")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def too_long(head: bytes, size: int) -> Malformed:
    """Return the refusal for a line with more than ``MOST_BYTES``. ``head``: its beginning."""
    identifier, awaits = _named_in(head)
    return Malformed(
        INVALID_REQUEST, f"a message of {size >> 20:,} MiB: at most {MOST_BYTES >> 20} MiB are read", identifier, awaits
    )


def _named_in(head: bytes) -> tuple[Identifier, bool]:
    """Return the identifier at the beginning of an object, None if it is not there, and whether it is a request's as
    far as the names before the long value tell."""
    text = head.decode("utf-8", "replace")
    at, identifier, awaits = text.find("{") + 1, None, True
    with suppress(ValueError, RecursionError):  # the head ends here
        while at:
            at = _after(text, at, " \t\r\n,")
            name, at = _decoder.raw_decode(text, at)
            if name in ("result", "error"):
                awaits = False
            at = _after(text, at, " \t\r\n:")
            value, at = _decoder.raw_decode(text, at)
            if name == "id" and isinstance(value, str | int | float) and not isinstance(value, bool):
                identifier = value
    return identifier, awaits


def _after(text: str, at: int, passed: str) -> int:
    while at < len(text) and text[at] in passed:
        at += 1
    return at


# --- making lines ---


def line_of(body: dict[str, Any]) -> bytes:
    """Return a message as a line without its end. ASCII only: an escaped lone surrogate stays escaped."""
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def key_of(identifier: Identifier) -> str:
    """Return a key that two identifiers share if some reader takes them for the same."""
    if isinstance(identifier, int | float):
        try:
            number = float(identifier)
        except OverflowError:
            return json.dumps(identifier)
        return json.dumps(int(number) if number.is_integer() else number)
    return json.dumps(identifier)


def answer(identifier: Identifier, result: Any) -> bytes:
    return line_of({"jsonrpc": "2.0", "id": identifier, "result": result})


def error(identifier: Identifier, code: int, message: str, data: Any = None) -> bytes:
    more = {} if data is None else {"data": data}
    return line_of({"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message, **more}})


def request(identifier: Identifier, method: str, params: dict[str, Any]) -> bytes:
    return line_of({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> bytes:
    return line_of({"jsonrpc": "2.0", "method": method, "params": params})


class CallError(Exception):
    """The error with which an agent's call is answered."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data
