"""One exchange with the network that the gate has seen: who wanted to reach what, what was decided, what came of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Way = Literal["connect", "http", "socks", "tls", "raw", "dns"]
"""How it came: CONNECT, a plain HTTP request, SOCKS5, TLS or something else on a captured connection, a lookup that was
refused (one that is answered is no flow: the connection after it is)."""


class Flow(NamedTuple):
    started: int
    """Nanoseconds since 1970."""
    way: Way
    host: str
    """The name, or the address where the client used one, in canonical form; what could not be one is shown escaped."""
    port: int
    verdict: Literal["allow", "deny"]
    rule: str
    """Where the deciding rule stands: ``policy.yaml:12``, ``preset npm``, ``asked``; empty for none."""
    reason: str
    address: str = ""
    """The address that was dialled; empty if it did not come to that."""
    method: str = ""
    path: str = ""
    status: int = 0
    """Of a plain or inspected HTTP exchange; 0: not known."""
    sent: int = 0
    """Bytes from the sandbox to the network."""
    received: int = 0
    seconds: float = 0.0
    error: str = ""
    """What went wrong after it had been allowed: the lookup, the dial, a certificate, the peer."""


class Question(NamedTuple):
    """A connection waits for somebody to say whether its host is allowed."""

    identity: int
    host: str
    port: int
    way: Way


class Answer(NamedTuple):
    allowed: bool
    keep: bool = False
    """Not only for this command: the project remembers it."""
