"""A held mail: its envelope, and the part of its content that a review shows.

Rules of this file: pure, and for untrusted text; ValueError for an envelope that is not understood. A mail's key is its
Message-ID, but no server can be asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import NamedTuple

MOST_MAIL = 16 << 20
_MOST_RECIPIENTS = 100
_LONE = regex(rb"\r(?!\n)|(?<!\r)\n")
_ADDRESS = regex(r"[!-;=?-~]{1,254}")


class Mail(NamedTuple):
    sender: str
    """Of the envelope; empty: a mail that wants no answer."""
    recipients: tuple[str, ...]
    subject: str
    key: str
    """Its Message-ID."""

    @property
    def label(self) -> str:
        return f'mail "{self.subject}" for {", ".join(self.recipients)}'


def parse_mail(headers: Sequence[tuple[str, str]], body: bytes) -> Mail:
    """Return a mail. ``headers``: ``from`` and ``to`` of its envelope. Raise ValueError."""
    sender = "".join(value for name, value in headers if name == "from")
    recipients = tuple(value for name, value in headers if name == "to")
    if len(body) > MOST_MAIL or not 0 < len(recipients) <= _MOST_RECIPIENTS:
        raise ValueError(f"a mail of more than {MOST_MAIL >> 20} MiB, or for more than {_MOST_RECIPIENTS} recipients")
    if not all(_ADDRESS.fullmatch(address) for address in (*recipients, *([sender] if sender else []))):
        raise ValueError("a mail with an address that is not understood")
    if _LONE.search(body):  # servers that take them for line ends may see another mail in it (SMTP smuggling)
        raise ValueError("a mail with line ends that are not CRLF")
    found = dict(mail_lines(body)[0])
    return Mail(sender, recipients, found.get("Subject", "")[:200], found.get("Message-ID", "")[:200])


def mail_lines(body: bytes) -> tuple[list[tuple[str, str]], list[str]]:
    """Return a mail's main headers, and lines with its text and the names and sizes of its attachments."""
    import email
    import email.policy

    lines: list[str] = []
    try:
        message = email.message_from_bytes(body, policy=email.policy.default)
        names = ("From", "To", "Cc", "Reply-To", "Subject", "Message-ID")
        headers = [(name, show(str(message[name]).encode())) for name in names if message[name] is not None]
        for part in message.walk():
            if part.is_multipart():
                continue
            content = part.get_payload(decode=True)
            data = content if isinstance(content, bytes) else b""
            if part.get_filename() is not None or part.get_content_maintype() != "text":
                name = show(str(part.get_filename() or "").encode())
                lines.append(f"attachment {name} ({show(part.get_content_type().encode())}, {len(data):,} bytes)")
            else:
                lines += [show(line[:300]) for line in data.splitlines()[:40] if line.strip()]
    except (ValueError, LookupError, TypeError, AttributeError):  # the parser's own faults on damaged mail
        return [], [show(line[:300]) for line in body.splitlines()[:40]]
    return headers, lines
