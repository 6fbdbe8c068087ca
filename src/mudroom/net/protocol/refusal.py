"""Refusals for a client, in its own protocol."""

from __future__ import annotations

from mudroom.core.network.allowing import command_to_allow

_PHRASES = {400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 431: "Request Header Fields Too Large",
            501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}  # fmt: skip

ALERT = b"\x15\x03\x03\x00\x02\x02\x31"
"""TLS: a fatal alert, access_denied (RFC 8446 6.2)."""


def response(status: int, text: str) -> bytes:
    """Return a complete HTTP response with one line of text, after which the connection closes. The text is also in the
    status line, because most clients show only that when a CONNECT fails."""
    line = "".join(
        character if character.isascii() and character.isprintable() else "?" for character in f"mudroom: {text}"
    )
    body = line.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]} ({line[:200]})\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def denied(host: str, port: int, reason: str) -> str:
    """Return a refusal's text: host and port, the reason, and the command that allows it, if there is one."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    command = command_to_allow(where, reason)
    return f"{where} is not allowed: {reason}" + (f"; to allow it: {command}" if command else "")
