"""DNS messages, as far as a responder needs them that knows no records: one question, and a short answer (RFC 1035).

Rules of this file: pure. A question is read strictly: one, of plain labels, no compression. What stands behind it (an
OPT record, most often) is not looked at. Answers fit into any datagram.
"""

from __future__ import annotations

from typing import NamedTuple

from mudroom.core.network.host import parse_host

A, AAAA, ANY = 1, 28, 255
IN = 1
NO_ERROR, FORMAT_ERROR, NO_NAME, NOT_IMPLEMENTED, REFUSED = 0, 1, 3, 4, 5
TTL = 60
"""Seconds. The names are known for longer than that (``synthetic.py``)."""
LONGEST = 4096
"""Bytes of a question with all that may follow it."""


class BadMessage(ValueError):
    """``answer``: what to say to it; empty: nothing."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class DnsQuestion(NamedTuple):
    identity: int
    flags: int
    name: bytes
    """Labels with dots; a dot or a control character within a label is seen as what it is not: no host's name."""
    kind: int
    raw: bytes
    """The question as it came, to be repeated in the answer."""

    @property
    def host(self) -> str | None:
        """The name in canonical form; None if it can be no host's."""
        try:
            host = parse_host(self.name)
        except ValueError:
            return None
        return host.text if host.kind == "name" else None


def parse_question(data: bytes) -> DnsQuestion:
    """Raises BadMessage."""
    if len(data) < 12 or len(data) > LONGEST:
        raise BadMessage("it is too short or too long")
    identity, flags = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    if flags & 0x8000:
        raise BadMessage("it is an answer")  # and to answer that could go on for ever
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
    """``addresses``: of the family that was asked for; none with NO_ERROR: the name is there, but nothing of the
    kind."""
    head = _header(question.identity, question.flags, code, 1, len(addresses))
    kind = question.kind.to_bytes(2, "big")
    records = (
        b"\xc0\x0c" + kind + b"\0\1" + TTL.to_bytes(4, "big") + len(address).to_bytes(2, "big") + address
        for address in addresses
    )
    return head + question.raw + b"".join(records)


def _header(identity: int, flags: int, code: int, questions: int, answers: int) -> bytes:
    """An answer's, with the wish for recursion repeated and granted."""
    reply = 0x8080 | (flags & 0x7900) | code
    return b"".join(number.to_bytes(2, "big") for number in (identity, reply, questions, answers, 0, 0))
