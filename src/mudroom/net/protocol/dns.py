"""DNS messages, as far as a responder without records needs them: one question, and a short answer (RFC 1035).

Rules of this file: pure. A question is parsed strictly: exactly one, with plain labels, without compression. Further
sections (an OPT record, usually) are ignored. Answers fit into any datagram.
"""

from __future__ import annotations

from mudroom.core.network.host import parse_host
from mudroom.typing import NamedTuple

A, AAAA, ANY = 1, 28, 255
IN = 1
NO_ERROR, FORMAT_ERROR, NO_NAME, NOT_IMPLEMENTED, REFUSED = 0, 1, 3, 4, 5
TTL = 60
"""Seconds. The names stay valid for longer than that (``synthetic.py``)."""
LONGEST = 4096
"""Maximum bytes in a query with all its sections."""


class BadMessage(ValueError):
    """``answer``: the reply to it; empty: no reply."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class DnsQuestion(NamedTuple):
    identity: int
    flags: int
    name: bytes
    """Labels with dots. A dot within a label is replaced by a NUL, so that it is not taken for a host's name."""
    kind: int
    raw: bytes
    """The question as received, to be repeated in the answer."""

    @property
    def host(self) -> str | None:
        """The name in canonical form, or None if it cannot be a host's name."""
        try:
            host = parse_host(self.name)
        except ValueError:
            return None
        return host.text if host.kind == "name" else None


def parse_question(data: bytes) -> DnsQuestion:
    """Return the question. Raise BadMessage."""
    if len(data) < 12 or len(data) > LONGEST:
        raise BadMessage("it is too short or too long")
    identity, flags = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    if flags & 0x8000:
        raise BadMessage("it is an answer")  # answering it could cause a loop
    if flags & 0x7800:
        raise BadMessage("it is no query", _header(identity, flags, NOT_IMPLEMENTED, 0, 0))
    wrong = _header(identity, flags, FORMAT_ERROR, 0, 0)
    if data[4:6] != b"\0\1" or data[6:10] != b"\0\0\0\0":
        raise BadMessage("it asks not exactly one question", wrong)
    labels, at = [], 12
    while True:
        length = data[at] if at < len(data) else 64
        if length > 63:
            raise BadMessage("its name is compressed, or ends too early", wrong)
        label = data[at + 1 : at + 1 + length]
        at += 1 + length
        if not length:
            break
        labels.append(label.replace(b".", b"\0"))
    if at + 4 > len(data) or at - 12 > 255:
        raise BadMessage("its name is too long, or it ends too early", wrong)
    kind, family = int.from_bytes(data[at : at + 2], "big"), int.from_bytes(data[at + 2 : at + 4], "big")
    if family != IN:
        raise BadMessage("it is not about the internet", _header(identity, flags, REFUSED, 0, 0))
    return DnsQuestion(identity, flags, b".".join(labels), kind, data[12 : at + 4])


def answer(question: DnsQuestion, code: int, addresses: tuple[bytes, ...] = ()) -> bytes:
    """Return an answer. ``addresses``: in the requested family; if empty with NO_ERROR, the name exists but has no such
    record."""
    head = _header(question.identity, question.flags, code, 1, len(addresses))
    kind = question.kind.to_bytes(2, "big")
    records = (
        b"\xc0\x0c" + kind + b"\0\1" + TTL.to_bytes(4, "big") + len(address).to_bytes(2, "big") + address
        for address in addresses
    )
    return head + question.raw + b"".join(records)


def _header(identity: int, flags: int, code: int, questions: int, answers: int) -> bytes:
    """Return an answer's header. The recursion-desired flag is repeated, recursion-available is set."""
    reply = 0x8080 | (flags & 0x7900) | code
    return b"".join(number.to_bytes(2, "big") for number in (identity, reply, questions, answers, 0, 0))
