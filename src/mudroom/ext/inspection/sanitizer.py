"""Remove credentials' real values from everything that servers send.

Rules of this file:

1. Pure. A value is found verbatim and in the spellings that servers use when they repeat it: in another case;
   percent-encoded, also in part, several times, and as a form; as JSON and JavaScript escapes; as HTML character
   references; in hexadecimal digits; in UTF-16; in base64, at each of the three alignments and in the URL alphabet, so
   also inside a Basic pair, and in base64 of that. Escapes (percent, JSON, JavaScript, HTML) are undone on top of any
   of these, up to four times. Line ends within it are ignored.
2. An occurrence is replaced by text with the same length, so that framing, lengths and offsets stay valid.
3. A stream is never held back, because a server may wait for an answer to its data. A value's beginning at the end of a
   piece is therefore replaced as soon as it is long enough to be told from other text. A shorter beginning has
   been passed on when the rest arrives, and only the rest is replaced: at most ``_BEGINNING`` - 1 characters of the
   value get through, if the server splits it there.
4. Not found: compressed, encrypted or reversed text, base32, base64 three times over, hexadecimal digits, UTF-16 or
   base64 of another spelling (but base64 of base64), a value in pieces with other text between, and a value spread over
   several responses. A server that wants to give a credential away can always do so.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence

from mudroom.core.network.flow import Fields, Flow
from mudroom.core.network.inspection import Credential
from mudroom.core.text.regex import regex
from mudroom.ext.inspection.placeholder import MARK, SHORTEST_VALUE
from mudroom.typing import NamedTuple

Field = tuple[bytes, bytes]

_UPPER, _LOWER = bytes(range(65, 91)), bytes(range(97, 123))
_FOLD = bytes.maketrans(_UPPER + b"-_ ", _LOWER + b"+/+")
"""Maps to lower case, the standard base64 alphabet (RFC 4648 5), and the space as forms write it."""
_TO_URL = bytes.maketrans(b"+/", b"-_")
"""To base64's alphabet for URLs."""
_BREAKS = b"\r\n\t"
"""Dropped before a comparison, because base64 is broken into lines. No value has them."""
_PIECE = 256
"""Bytes that are searched for together. A longer value is found piece by piece."""
_SPELLED = 12
"""Maximum bytes that spell one byte, on average over a value."""
_BEGINNING = 8
"""Bytes by which a value's beginning is recognised at the end of a piece."""
_LEVELS = 4
"""How often text is unescaped: escapes can be escaped in turn."""

_ESCAPE = regex(
    rb"%(?P<percent>[0-9A-Fa-f]{2})"
    rb"|\\(?:u00(?P<u>[0-9A-Fa-f]{2})|x(?P<x>[0-9A-Fa-f]{2})|u\{0{0,4}(?P<point>[0-9A-Fa-f]{1,2})\}"
    rb"|(?P<itself>[/\"'\\])|(?P<line>[nrt]))"
    rb"|&(?:#0{0,6}(?P<decimal>[0-9]{1,3});?|#[xX]0{0,6}(?P<hex>[0-9A-Fa-f]{1,2});?|(?P<name>[A-Za-z]{2,10});)"
)
_UNFINISHED = regex(rb"(?:%[0-9A-Fa-f]?|\\(?:u\{?[0-9A-Fa-f]{0,5}|x[0-9A-Fa-f]?)?|&[#A-Za-z0-9]{0,10})\Z")
"""The beginning of an escape at the end of a piece."""
_LONGEST_ESCAPE = 16
_ENTITIES = {
    b"amp": 38, b"apos": 39, b"ast": 42, b"bsol": 92, b"colon": 58, b"comma": 44, b"commat": 64, b"dollar": 36,
    b"equals": 61, b"excl": 33, b"grave": 96, b"gt": 62, b"hat": 94, b"lbrace": 123, b"lbrack": 91, b"lcub": 123,
    b"lowbar": 95, b"lpar": 40, b"lsqb": 91, b"lt": 60, b"midast": 42, b"num": 35, b"percnt": 37, b"period": 46,
    b"plus": 43, b"quest": 63, b"quot": 34, b"rbrace": 125, b"rbrack": 93, b"rcub": 125, b"rpar": 41, b"rsqb": 93,
    b"semi": 59, b"sol": 47, b"verbar": 124, b"vert": 124,
}  # fmt: skip
"""Named character references for printable ASCII (HTML 13.5)."""


class _Needle(NamedTuple):
    text: bytes
    """Folded."""
    least: int
    """Minimum bytes by which its beginning is recognised at the end of a piece."""


class Occurrence(NamedTuple):
    start: int
    end: int
    credential: Credential


class Sanitizer:
    """The values of some credentials, prepared for searching. It holds secrets: never log it."""

    def __init__(self, credentials: Sequence[Credential]) -> None:
        self._credentials = tuple(credentials)
        self._needles = [(needle, credential) for credential in credentials for needle in _needles(credential.value)]
        self.searches = bool(self._needles)
        """Whether there is a value to search for."""
        longest = max((min(len(credential.value), _PIECE) for credential in credentials), default=0)
        self.reach = longest * _SPELLED
        """Bytes before a piece in which an occurrence that ends in the piece can begin."""

    def __repr__(self) -> str:
        return f"Sanitizer({self._credentials})"

    def fields(self, fields: Sequence[Field]) -> list[Field]:
        """Return headers or trailers without the values, in names and values."""
        fields = [(bytes(name), bytes(value)) for name, value in fields]
        if not self.may_hold(b"".join(map(b"".join, fields)), is_whole=True):
            return fields
        return [(self.whole(name), self.whole(value)) for name, value in fields]

    def whole(self, data: bytes) -> bytes:
        """Return self-contained bytes (a header, a reason phrase, a message) without the values."""
        if not self.may_hold(data, is_whole=True):
            return data
        return self._masked(data, self.spans(data, is_whole=True))

    def text(self, text: str) -> str:
        """Return a text that quotes a server, without the values."""
        data = text.encode("utf-8", "surrogatepass")
        return self.whole(data).decode("utf-8", "surrogatepass") if self.may_hold(data, is_whole=True) else text

    def flow(self, flow: Flow) -> Flow:
        """Return a flow without the values."""
        return flow._replace(
            host=self.text(flow.host),
            reason=self.text(flow.reason),
            error=self.text(flow.error),
            path=self.text(flow.path),
            request=self._headers(flow.request),
            response=self._headers(flow.response),
        )

    def _headers(self, fields: Fields) -> Fields:
        return tuple((self.text(name), self.text(value)) for name, value in fields)

    def stream(self) -> StreamSanitizer:
        """Return a sanitizer for one body, or one message in parts."""
        return StreamSanitizer(self)

    # --- searching ---

    def may_hold(self, data: bytes, *, is_whole: bool) -> bool:
        """Return whether ``spans`` would find an occurrence. It maps no positions, so it is fast."""
        if any(self._is_in(text, is_whole) for text in _levels(data)):
            return True
        return not is_whole and any(self._is_in(text, is_whole) for text in _ends(data[-self.reach :]))

    def _is_in(self, data: bytes, is_whole: bool) -> bool:
        folded = data.translate(_FOLD, _BREAKS)
        return any(
            needle.text in folded or (not is_whole and _unfinished(folded, needle) >= 0)
            for needle, _credential in self._needles
        )

    def spans(self, data: bytes, *, is_whole: bool) -> list[Occurrence]:
        """Return the occurrences, in order and not overlapping."""
        found: list[Occurrence] = []
        for strips in (False, True)[: 1 if is_whole else 2]:
            characters = [(byte, at, at + 1) for at, byte in enumerate(data)]
            for _ in range(_LEVELS + 1):
                if strips:
                    del characters[len(_finished(_bytes(characters))) :]
                found += self._spans(characters, len(data), is_whole)
                plainer = _unescaped(characters)
                if len(plainer) == len(characters):
                    break
                characters = plainer
        return _merged(found)

    def _spans(self, characters: list[tuple[int, int, int]], length: int, is_whole: bool) -> Iterator[Occurrence]:
        places = [(start, end) for byte, start, end in characters if byte not in _BREAKS]
        folded = _bytes(characters).translate(_FOLD, _BREAKS)
        for needle, credential in self._needles:
            at = folded.find(needle.text)
            while at >= 0:
                yield Occurrence(places[at][0], places[at + len(needle.text) - 1][1], credential)
                at = folded.find(needle.text, at + 1)
            at = -1 if is_whole else _unfinished(folded, needle)
            if at >= 0:
                yield Occurrence(places[at][0], length, credential)

    def _masked(self, data: bytes, spans: Sequence[Occurrence], start: int = 0) -> bytes:
        """Return the data from ``start`` on with its spans replaced."""
        parts, at = [], start
        for span in spans:
            first, end = max(span.start, start), max(span.end, start)
            parts.append(data[at:first])
            parts.append(_mask(data[first:end], span.credential))
            at = end
        parts.append(data[at:])
        return b"".join(parts)

    def pass_on(self, before: bytes, piece: bytes) -> bytes:
        """Return a stream's next piece without the values. ``before``: the bytes before it, as they were received."""
        data = before + piece
        if not self.may_hold(data, is_whole=False):
            return piece
        return self._masked(data, self.spans(data, is_whole=False), len(before))


class StreamSanitizer:
    """Takes a body in pieces; each comes back with its length unchanged."""

    def __init__(self, sanitizer: Sanitizer) -> None:
        self._sanitizer = sanitizer
        self._before = b""

    def see(self, piece: bytes) -> bytes:
        """Return the piece without values, including values that began in earlier pieces."""
        clean = self._sanitizer.pass_on(self._before, piece)
        self._before = (self._before + piece)[-self._sanitizer.reach :] if self._sanitizer.searches else b""
        return clean


def _needles(value: str) -> Iterator[_Needle]:
    raw = value.encode()
    starts = [*range(0, max(len(raw) - _PIECE, 0), _PIECE), max(len(raw) - _PIECE, 0)]
    for start in starts:
        piece = raw[start : start + _PIECE]
        for text in _levels(piece):  # a value that contains escapes is unescaped with the text around it
            needle = _needle(text, 1)
            if len(needle.text) >= SHORTEST_VALUE:
                yield needle
        yield _needle(binascii.b2a_hex(piece), 2)
        yield _needle(b"\0".join(piece[at : at + 1] for at in range(len(piece))), 2)
        for coded in _in_base64(piece):
            yield _needle(coded, 4 / 3)
            for inner in dict.fromkeys((coded, coded.translate(_TO_URL))):
                for twice in _in_base64(inner):  # a Basic pair is base64, and a message that quotes it may be, too
                    yield _needle(twice, 16 / 9)


def _in_base64(piece: bytes) -> Iterator[bytes]:
    """Yield the base64 digits that depend on these bytes alone, at each alignment."""
    for before in range(3):
        coded = binascii.b2a_base64(bytes(before) + piece, newline=False)
        yield coded[(before * 8 + 5) // 6 : (before + len(piece)) * 8 // 6]


def _needle(text: bytes, spelled: float) -> _Needle:
    """Return the needle for a text. ``spelled``: bytes for each byte of the value."""
    text = text.translate(_FOLD, _BREAKS)
    return _Needle(text, max(4, min(len(text) // 2, -int(-_BEGINNING * spelled // 1))))


def _levels(data: bytes) -> Iterator[bytes]:
    """Yield the data as it is, and unescaped once, twice and so on."""
    yield data
    for _ in range(_LEVELS):
        if not (b"%" in data or b"\\" in data or b"&" in data):
            return
        plainer = _ESCAPE.sub(_plain, data)
        if len(plainer) == len(data):
            return
        data = plainer
        yield data


def _ends(data: bytes) -> Iterator[bytes]:
    """Yield as ``_levels`` does, each time without an escape that is unfinished at the end."""
    if not (b"%" in data or b"\\" in data or b"&" in data):
        return
    for _ in range(_LEVELS + 1):
        data = _finished(data)
        yield data
        plainer = _ESCAPE.sub(_plain, data)
        if len(plainer) == len(data):
            return
        data = plainer


def _finished(data: bytes) -> bytes:
    match = _UNFINISHED.search(data, max(len(data) - _LONGEST_ESCAPE, 0))
    return data if match is None else data[: match.start()]


def _bytes(characters: list[tuple[int, int, int]]) -> bytes:
    return bytes(byte for byte, _start, _end in characters)


def _unfinished(folded: bytes, needle: _Needle) -> int:
    """Return the position at which the text's last bytes are the needle's beginning, or -1."""
    beginning = needle.text[: needle.least]
    at = folded.find(beginning, max(len(folded) - len(needle.text) + 1, 0))
    while at >= 0:
        if needle.text.startswith(folded[at:]):
            return at
        at = folded.find(beginning, at + 1)
    return -1


def _byte(match: re.Match[bytes]) -> int | None:
    """Return an escape's character; -1 for a line end, None if it escapes no printable ASCII."""
    kind, digits = match.lastgroup, match.group(match.lastgroup or 0)
    if kind == "name":
        return _ENTITIES.get(digits.lower())
    if kind == "line":
        return -1
    if kind == "itself":
        return int(digits[0])
    number = int(digits, 10 if kind == "decimal" else 16)
    return number if number < 256 else None


def _plain(match: re.Match[bytes]) -> bytes:
    byte = _byte(match)
    if byte is None:
        whole: bytes = match.group()
        return whole
    return bytes((byte,)) if byte >= 0 else b""


def _unescaped(characters: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Unescape as ``_ESCAPE.sub(_plain, …)`` does, keeping the characters' positions."""
    data, plainer, at = _bytes(characters), [], 0
    for match in _ESCAPE.finditer(data):
        byte = _byte(match)
        if byte is None:
            continue
        start, end = match.span()
        plainer += characters[at:start]
        if byte >= 0:
            plainer.append((byte, characters[start][1], characters[end - 1][2]))
        at = end
    return plainer + characters[at:]


def _merged(spans: list[Occurrence]) -> list[Occurrence]:
    merged: list[Occurrence] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged


def _mask(found: bytes, credential: Credential) -> bytes:
    placeholder = credential.placeholder.encode()
    if found == credential.value.encode() and len(found) == len(placeholder):
        return placeholder
    return (MARK.encode() * (len(found) // len(MARK) + 1))[: len(found)]
