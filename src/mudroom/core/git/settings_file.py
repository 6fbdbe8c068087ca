"""git's settings files: parse and encode. Pure; syntax: git-config(1), "Syntax", and git's config.c.

Included files are not read; ``included`` names them. A file that git refuses is refused with ValueError, and never
guessed at. The same holds for NUL, a single carriage return and a setting before the first section, which versions of
git read differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mudroom.typing import NamedTuple

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ALPHABET = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY = _ALPHABET | frozenset(b"0123456789-")
_BLANK = frozenset(b" \t\n")
_END, _QUOTE, _ESCAPE = b'\n"\\'
_COMMENT = frozenset(b"#;")
_ESCAPES = {ord("t"): b"\t", ord("b"): b"\b", ord("n"): b"\n", _ESCAPE: b"\\", _QUOTE: b'"'}


class GitSetting(NamedTuple):
    section: bytes
    """In lower case."""
    subsection: bytes | None
    key: bytes
    """In lower case."""
    value: bytes | None
    """None: the key stands alone, which means true."""

    @property
    def name(self) -> bytes:
        """The name as ``git config`` takes it: core.hookspath, remote.origin.url."""
        return b".".join(part for part in (self.section, self.subsection, self.key) if part is not None)


def parse_settings(data: bytes) -> tuple[GitSetting, ...]:
    """Return the settings in file order. Raise ValueError with the reason if the file cannot be parsed."""
    text = data.removeprefix(_BYTE_ORDER_MARK).replace(b"\r\n", b"\n")
    if b"\r" in text or b"\0" in text:
        raise ValueError("it holds a NUL or a single carriage return")
    return tuple(_Parser(text + b"\n").parse())


class _Parser:
    def __init__(self, text: bytes) -> None:
        self._text, self._position = text, 0

    def parse(self) -> list[GitSetting]:
        settings: list[GitSetting] = []
        section: tuple[bytes, bytes | None] | None = None
        while self._position < len(self._text):
            byte = self._next()
            if byte in _COMMENT:
                self._position = self._text.index(b"\n", self._position)
            elif byte == ord("["):
                section = self._section()
            elif byte not in _BLANK:
                if byte not in _ALPHABET or section is None:
                    raise self._error()
                self._position -= 1
                settings.append(GitSetting(*section, *self._pair()))
        return settings

    def _next(self) -> int:
        """Return the next byte; at the end of the text a line feed, as git does."""
        byte = self._text[self._position] if self._position < len(self._text) else _END
        self._position += 1
        return byte

    def _error(self) -> ValueError:
        line = self._text.count(b"\n", 0, max(self._position - 1, 0)) + 1
        return ValueError(f"line {line} is not valid")

    def _section(self) -> tuple[bytes, bytes | None]:
        """Return a header's section and subsection: ``[a]``, ``[a "b"]``, or the old form ``[a.b]``, in lower case."""
        start = self._position
        while (byte := self._next()) in _KEY or byte == ord("."):
            pass
        name = self._text[start : self._position - 1].lower()
        if byte in _BLANK and byte != _END:
            name += b"." + self._subsection()
        elif byte != ord("]"):
            raise self._error()
        section, dot, subsection = name.partition(b".")
        if not section:
            raise self._error()
        return section, subsection if dot else None

    def _subsection(self) -> bytes:
        byte = self._next()
        while byte in _BLANK and byte != _END:
            byte = self._next()
        if byte != _QUOTE:
            raise self._error()
        name = bytearray()
        while (byte := self._next()) != _QUOTE:
            if byte == _ESCAPE:
                byte = self._next()
            if byte == _END:
                raise self._error()
            name.append(byte)
        if self._next() != ord("]"):
            raise self._error()
        return bytes(name)

    def _pair(self) -> tuple[bytes, bytes | None]:
        start = self._position
        while (byte := self._next()) in _KEY:
            pass
        key = self._text[start : self._position - 1].lower()
        while byte in b" \t":
            byte = self._next()
        if byte == _END:
            return key, None
        if byte != ord("="):
            raise self._error()
        return key, self._value()

    def _value(self) -> bytes:
        value, blanks, quoted = bytearray(), bytearray(), False
        while True:
            byte = self._next()
            if byte == _END:
                if quoted:
                    raise self._error()
                return bytes(value)
            if byte in _BLANK and not quoted:
                blanks += bytes((byte,)) if value else b""
                continue
            if byte in _COMMENT and not quoted:
                self._position = self._text.index(b"\n", self._position) + 1
                return bytes(value)
            value += blanks
            blanks.clear()
            if byte == _QUOTE:
                quoted = not quoted
            elif byte == _ESCAPE:
                value += self._escaped()
            else:
                value.append(byte)

    def _escaped(self) -> bytes:
        if self._position >= len(self._text):
            raise self._error()
        byte = self._next()
        if byte == _END:
            return b""  # the value continues on the next line
        if byte not in _ESCAPES:
            raise self._error()
        return _ESCAPES[byte]


def encode_settings(
    settings: Iterable[GitSetting], keep: Callable[[GitSetting], bool] = lambda _setting: True
) -> bytes:
    """Return a settings file with the settings that ``keep`` accepts, in their order."""
    lines: list[bytes] = []
    current: tuple[bytes, bytes | None] | None = None
    for setting in filter(keep, settings):
        if setting[:2] != current:
            current = setting[:2]
            lines.append(_encode_header(*current))
        lines.append(b"\t" + setting.key + (b"" if setting.value is None else b" = " + _quote(setting.value)))
    return b"".join(line + b"\n" for line in lines)


def _encode_header(section: bytes, subsection: bytes | None) -> bytes:
    if subsection is None:
        return b"[" + section + b"]"
    return b"[" + section + b' "' + subsection.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"]'


def _quote(value: bytes) -> bytes:
    for character, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"), (b"\b", b"\\b")):
        value = value.replace(character, escaped)
    return b'"' + value + b'"'


def hook_directories(settings: Iterable[GitSetting]) -> list[bytes]:
    """Return the values of core.hooksPath, as written."""
    return [setting.value for setting in settings if setting[:3] == (b"core", None, b"hookspath") and setting.value]


def included(settings: Iterable[GitSetting]) -> list[bytes]:
    """Return the files that the settings include, as written: include.path and includeIf.*.path."""
    sections = (b"include", b"includeif")
    return [s.value for s in settings if s.section in sections and s.key == b"path" and s.value]


_FILES = frozenset((
    b"commit.template", b"core.excludesfile", b"core.attributesfile", b"gpg.ssh.allowedsignersfile", b"http.sslcainfo",
))  # fmt: skip


def named_files(settings: Iterable[GitSetting]) -> list[bytes]:
    """Return the files, as written, without which git stops or does another thing: of ignored names, of attributes, the
    template of a message, certificates."""
    return [
        s.value for s in settings if s.value and (s.name in _FILES or (s.section, s.key) == (b"http", b"sslcainfo"))
    ]
