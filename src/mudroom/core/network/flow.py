"""One exchange with the network that the gate has seen: who wanted to reach what, what was decided, what came of it.

Written down without users, passwords and queries of URLs: those are where secrets are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

Way = Literal["connect", "http", "https", "socks", "tls", "raw", "dns"]
"""How it came: CONNECT, a plain HTTP request, one inside of TLS that was inspected, SOCKS5, TLS or something else on a
captured connection, a lookup that was refused (one that is answered is no flow: the connection after it is)."""
Fields = tuple[tuple[str, str], ...]
"""Names and values of headers."""


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
    version: str = ""
    """Of an inspected exchange: ``HTTP/1.1``, ``HTTP/2``."""
    request: Fields = ()
    """The client's headers, if inspected: what is secret by its kind is left out, and credentials are placeholders."""
    response: Fields = ()


class FlowQuestion(NamedTuple):
    """A connection waits for somebody to say whether its host is allowed."""

    identity: int
    host: str
    port: int
    way: Way
    fork: str = ""
    """In which the command runs that wants it; empty: one that was made for it."""


class FlowAnswer(NamedTuple):
    allowed: bool
    keep: bool = False
    """Not only for this command: the project remembers it."""
    why: str = ""
    """Of a refusal, if there is more to say than that somebody has said no."""
    lasting: bool = True
    """False: it is refused, but nobody was asked. The next connection may be luckier."""


NOBODY = FlowAnswer(False, why="nobody is there to be asked", lasting=False)


# --- as an event of the journal ---

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^?#\s'\"<>]*)[?#][^\s'\"<>]*")


def flow_to_json(flow: Flow, *, redact: bool = True) -> dict[str, Any]:
    """What JSON can say, without what is empty. ``redact``: users and queries are shown as an ellipsis."""
    if redact:
        flow = flow._replace(
            host=_without_user(flow.host),
            path=_without_query(_without_user_in(flow.path)),
            reason=_without_secrets(flow.reason),
            error=_without_secrets(flow.error),
            request=_redacted(flow.request),
            response=_redacted(flow.response),
        )
    always = {"started", "way", "host", "port", "verdict"}
    return {name: value for name, value in flow._asdict().items() if value or name in always}


def flow_from_json(data: Mapping[str, Any]) -> Flow:
    """What ``flow_to_json`` wrote; what a newer mudroom has written beside it is left out. Raises ValueError."""
    found: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        if name not in data:
            if name not in Flow._field_defaults and name not in ("rule", "reason"):
                raise ValueError(f"a flow without {name}")
            continue
        value = data[name]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"a flow whose {name} is {value!r}")
        found[name] = value
    for name in _HEADERS:
        if name in data:
            found[name] = _headers(name, data[name])
    return Flow(**{"rule": "", "reason": "", **found})


_FIELDS: dict[str, type] = {
    "started": int, "way": str, "host": str, "port": int, "verdict": str, "rule": str, "reason": str, "address": str,
    "method": str, "path": str, "status": int, "sent": int, "received": int, "seconds": float, "error": str,
    "version": str,
}  # fmt: skip
_HEADERS = ("request", "response")
_CHOICES: dict[str, tuple[str, ...]] = {"way": get_args(Way), "verdict": ("allow", "deny")}


def _headers(name: str, value: Any) -> Fields:
    """Raises ValueError."""
    pairs = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(pair, list | tuple) and [type(one) for one in pair] == [str, str] for pair in pairs):
        raise ValueError(f"a flow whose {name} is {value!r}")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _redacted(fields: Fields) -> Fields:
    return tuple(
        (name, _without_query(value) if value.startswith("/") else _without_secrets(value)) for name, value in fields
    )


def _without_user(host: str) -> str:
    """Of what a client wrote where a host belongs."""
    return "…@" + host.rpartition("@")[2] if "@" in host else host


def _without_user_in(text: str) -> str:
    return _USER.sub("…@", text)


def _without_query(path: str) -> str:
    start = min((i for i in (path.find("?"), path.find("#")) if i >= 0), default=-1)
    return path if start < 0 else path[:start] + "?…"


def _without_secrets(text: str) -> str:
    """Of URLs in a sentence."""
    return _QUERY.sub(r"\1?…", _without_user_in(text))
