"""git's smart HTTP protocol, as far as a push is held: packets, advertised refs, a push's commands and its report.

Rules of this file: pure, and for untrusted bytes; ValueError for all that is not understood. Only protocol version 0:
the gate removes the client's wish for another. gitprotocol-common(5), gitprotocol-pack(5), gitprotocol-http(5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

FLUSH = b"0000"
NONE = "0" * 40
"""The id of a ref that is not there."""
MOST_COMMANDS = 1_000
LONGEST_HEAD = 1 << 20
"""Bytes of a push before its pack."""
MOST_REFS = 32 << 20
"""Bytes of a server's list of refs."""
_COMMAND = regex(rb"([0-9a-f]{40}) ([0-9a-f]{40}) (refs/[^\0-\x20\x7f~^:?*\[\\]{1,250})")
_BAD_REF = regex(r"\.\.|@\{|//|/\.|\.lock(/|$)|[/.]$")
_ADVERTISED = regex(rb"([0-9a-f]{40}) ([^\0\n]{1,1024})")
_SIDE = 65_515
"""Bytes of one packet on a side band."""


class IncompletePush(ValueError):
    """A push whose head is not there whole."""


class RefCommand(NamedTuple):
    """One ref of a push: from ``old`` to ``new``."""

    old: str
    new: str
    ref: str


class PushHead(NamedTuple):
    """A push without its pack."""

    commands: tuple[RefCommand, ...]
    capabilities: tuple[str, ...]
    options: tuple[str, ...]
    pack: int
    """Where the pack begins."""


class PushReport(NamedTuple):
    """A server's answer to a push."""

    problems: tuple[tuple[str, str], ...]
    """(ref, why it was refused), in the order of the commands; "" for a ref that has moved."""
    remote: tuple[str, ...]
    """Lines for people."""


class Advertisement(NamedTuple):
    service: bytes
    refs: tuple[tuple[str, str], ...]
    """(name, id); peeled tags and ``.have`` lines are among them."""
    capabilities: tuple[bytes, ...]
    rest: tuple[bytes, ...]
    """``shallow`` lines."""


def packet(data: bytes) -> bytes:
    return b"%04x%s" % (len(data) + 4, data)


def packets(data: bytes, at: int = 0) -> Iterator[tuple[bytes | None, int]]:
    """Yield each packet's content (None: a flush) and the offset behind it. Raise ValueError if one is damaged or cut
    off."""
    while at < len(data):
        digits = data[at : at + 4]
        if not regex(rb"[0-9a-fA-F]{0,4}").fullmatch(digits):
            raise ValueError("a packet has no length")
        length = int(digits, 16)
        if length in (1, 2, 3) or len(digits) < 4 or at + length > len(data):
            raise IncompletePush("a packet is cut off")
        end = at + max(length, 4)
        yield (data[at + 4 : end] if length else None), end
        at = end


def _text(data: bytes) -> str:
    text = data.decode()  # UnicodeDecodeError is a ValueError
    if not text.isprintable():
        raise ValueError("a text has control characters")
    return text


# --- a push ---


def parse_push(data: bytes) -> PushHead:
    """Return a push's head. ``data``: its beginning, at least ``LONGEST_HEAD`` bytes of it or all."""
    commands: list[RefCommand] = []
    capabilities: tuple[str, ...] = ()
    reader = packets(data)
    lines, end = _section(reader)
    for content in lines:
        line, _nul, words = content.partition(b"\0")
        if not commands:
            capabilities = tuple(_text(words.strip()).split())
        match = _COMMAND.fullmatch(line.rstrip(b"\n"))
        if match is None:
            kind = line.partition(b" ")[0]
            what = {b"shallow": "a push from a shallow clone", b"push-cert": "a signed push"}
            raise ValueError(what.get(kind, "a push that is not understood"))
        old, new, ref = (_text(part) for part in match.groups())
        if _BAD_REF.search(ref) or any(command.ref == ref for command in commands) or old == new:
            raise ValueError("a push that is not understood")
        commands.append(RefCommand(old, new, ref))
        if len(commands) > MOST_COMMANDS:
            raise ValueError(f"a push of more than {MOST_COMMANDS:,} refs")
    options: list[bytes] = []
    if commands and "push-options" in capabilities:
        options, end = _section(reader)
    if any(word.startswith("object-format=") and word != "object-format=sha1" for word in capabilities):
        raise ValueError("a push to a repository with SHA-256")
    return PushHead(tuple(commands), capabilities, tuple(_text(option.rstrip(b"\n")) for option in options), end)


def _section(reader: Iterator[tuple[bytes | None, int]]) -> tuple[list[bytes], int]:
    """Return the packets before a flush, and the offset behind it."""
    section: list[bytes] = []
    for content, end in reader:
        if content is None:
            return section, end
        section.append(content)
    raise IncompletePush("a push that is cut off, or too long")


def show_push(commands: Sequence[RefCommand]) -> bytes:
    """Return a push of refs whose objects the server has."""
    capabilities = b"\0 report-status side-band-64k agent=mudroom"
    lines = [b"%s %s %s" % (one.old.encode(), one.new.encode(), one.ref.encode()) for one in commands]
    lines[0] += capabilities
    body = b"".join(map(packet, lines)) + FLUSH
    if all(command.new == NONE for command in commands):
        return body
    empty = b"PACK\0\0\0\2\0\0\0\0"
    return body + empty + hashlib.sha1(empty, usedforsecurity=False).digest()


def show_missing(ref: str) -> bytes:
    """Return the answer to a fetch that wants a held ref's commits."""
    why = f"mudroom: {ref} has a held push, whose commits only the repository that made it has until the apply"
    return packet(b"ERR " + why.encode())


def show_answer(capabilities: Sequence[str], refs: Sequence[str], problem: str) -> bytes:
    """Return the answer to a client's push. ``problem``: why it is not held; empty: it is."""
    if problem:
        text = f"this cannot be held: {problem}"
        return show_report(capabilities, refs, text, text)
    return show_report(
        capabilities, refs, "\n".join(f"held: {ref} will be pushed when the fork is applied" for ref in refs)
    )


def show_report(capabilities: Sequence[str], refs: Sequence[str], text: str, problem: str = "") -> bytes:
    """Return the answer to a push. ``text``: the lines for people. ``problem``: why every ref is refused."""
    lines = [b"unpack ok\n"]
    lines += [f"ng {ref} {problem}\n".encode() if problem else f"ok {ref}\n".encode() for ref in refs]
    wanted = any(word.startswith("report-status") for word in capabilities)
    report = b"".join(map(packet, lines)) + FLUSH if wanted else b""
    if "side-band-64k" not in capabilities:
        return report
    said = [packet(b"\2" + line.encode() + b"\n") for line in text.splitlines()]
    parts = [packet(b"\1" + report[at : at + _SIDE]) for at in range(0, len(report), _SIDE)]
    return b"".join([*said, *parts]) + FLUSH


def parse_report(data: bytes, commands: Sequence[RefCommand], *, side_band: bool) -> PushReport:
    """Return what a server has answered. Raise ValueError if it is not complete."""
    said = b""
    if side_band:
        report = b""
        for content, _end in packets(data):
            band, piece = (content or b"\0")[:1], (content or b"")[1:]
            report += piece if band == b"\1" else b""
            said += piece if band in (b"\2", b"\3") else b""
        data = report
    lines = [content.rstrip(b"\n") for content, _end in packets(data) if content is not None]
    if not lines or not data.endswith(FLUSH):
        raise ValueError("the answer is cut off")
    problems = {command.ref: "it is not in the server's answer" for command in commands}
    whole = "" if lines[0] == b"unpack ok" else lines[0].decode("utf-8", "replace")
    for line in lines[1:]:
        word, _space, rest = line.decode("utf-8", "replace").partition(" ")
        ref, _space, why = rest.partition(" ")
        if ref in problems and word in ("ok", "ng"):
            problems[ref] = "" if word == "ok" else why or whole or "refused"
    remote = [line.strip() for line in said.decode("utf-8", "replace").replace("\r", "\n").splitlines()]
    return PushReport(tuple(problems.items()), tuple(line[:500] for line in remote if line)[:100])


# --- refs ---


def parse_advertisement(data: bytes) -> Advertisement:
    """Return the refs that a server tells (``info/refs?service=…``)."""
    reader = packets(data)
    service, _end = next(reader, (None, 0))
    if service is None or not service.startswith(b"# service=git-") or next(reader, (b"", 0))[0] is not None:
        raise ValueError("the server does not speak git's smart protocol")
    refs: list[tuple[str, str]] = []
    rest: list[bytes] = []
    capabilities: tuple[bytes, ...] = ()
    for content, _end in reader:
        if content is None:
            return Advertisement(service.strip(), tuple(refs), capabilities, tuple(rest))
        line, nul, words = content.rstrip(b"\n").partition(b"\0")
        if nul:
            capabilities = tuple(words.split())
        if line.startswith(b"shallow "):
            rest.append(line)
            continue
        match = _ADVERTISED.fullmatch(line)
        if match is None:
            raise ValueError("the server tells refs that are not understood (SHA-256, or another version)")
        if match[2] != b"capabilities^{}":
            refs.append((match[2].decode("utf-8", "surrogateescape"), match[1].decode()))
    raise ValueError("the server's list of refs is cut off")


def show_advertisement(told: Advertisement) -> bytes:
    refs = told.refs or (("capabilities^{}", NONE),)
    lines = [name_id[1].encode() + b" " + name_id[0].encode("utf-8", "surrogateescape") for name_id in refs]
    lines[0] += b"\0" + b" ".join(told.capabilities)
    body = b"".join(packet(line + b"\n") for line in [*lines, *told.rest])
    return packet(told.service + b"\n") + FLUSH + body + FLUSH


def overlaid(told: Advertisement, held: Mapping[str, str]) -> Advertisement:
    """Return the refs as they will be once the held pushes are sent. ``held``: ids by ref. Signed pushes are not
    offered: a certificate is valid for minutes."""
    refs = dict(told.refs)
    for ref, new in held.items():
        refs.pop(ref + "^{}", None)
        if new == NONE:
            refs.pop(ref, None)
        else:
            refs[ref] = new
    links = dict(
        word.removeprefix(b"symref=").decode().split(":", 1)
        for word in told.capabilities
        if word.startswith(b"symref=")
    )
    target = links.get("HEAD", "")
    if target in held:
        refs.pop("HEAD", None)
        refs |= {"HEAD": held[target]} if held[target] != NONE else {}
    ordered = sorted(refs.items(), key=lambda item: (item[0] == ".have", item[0] != "HEAD", item[0]))
    kept = tuple(word for word in told.capabilities if not word.startswith(b"push-cert"))
    haves = tuple(row for row in told.refs if row[0] == ".have")
    return told._replace(refs=(*(row for row in ordered if row[0] != ".have"), *haves), capabilities=kept)
