"""A flow: an exchange with the network at the gate, allowed or denied, with its origin, its decision and its result.

Users, passwords and queries in URLs are not recorded, since they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.text.regex import regex
from mudroom.typing import Any, Literal, NamedTuple, get_args

Way = Literal["connect", "http", "https", "socks", "tls", "raw", "dns"]
"""How the exchange arrived: CONNECT, a plain HTTP request, an HTTP request inside inspected TLS, SOCKS5, TLS or other
bytes on a captured connection, or a refused DNS lookup (an answered lookup is not a flow; the connection after it
is)."""
Fields = tuple[tuple[str, str], ...]
"""Header names and values."""


class Flow(NamedTuple):
    started: int
    """Nanoseconds since 1970."""
    way: Way
    host: str
    """The name, or the address if the client used an address, in canonical form; text that is not a host is shown
    escaped."""
    port: int
    verdict: Literal["allow", "deny"]
    rule: str
    """The deciding rule's location: ``policy.yaml:12``, ``preset npm``, ``asked``; empty for none."""
    reason: str
    address: str = ""
    """The dialled address; empty if no address was dialled."""
    method: str = ""
    path: str = ""
    status: int = 0
    """HTTP status if the exchange was plain or inspected; 0: not known."""
    sent: int = 0
    """Bytes from the sandbox to the network."""
    received: int = 0
    seconds: float = 0.0
    error: str = ""
    """The error after the exchange was allowed: from the lookup, the dial, a certificate or the peer."""
    version: str = ""
    """HTTP version if the exchange was inspected: ``HTTP/1.1``, ``HTTP/2``."""
    request: Fields = ()
    """The client's headers, if inspected: inherently secret headers are left out, and credentials are placeholders."""
    response: Fields = ()
    repeats: int = 0
    """How many further requests were refused in the same way; they have no flows. ``seconds`` is then the time from the
    first refused request to the end of the last."""


Hold = Literal["", "now", "later"]
"""When the answer to hold a host's effects has an effect: for this command, too; from the next command on, since this
one does not trust the gate's certificates; empty: there is no such answer."""


class FlowQuestion(NamedTuple):
    """A connection that waits for an answer whether its host is allowed."""

    identity: int
    host: str
    port: int
    way: Way
    fork: str = ""
    """The fork whose command opened the connection; empty: a fork made for that command."""
    hold: Hold = ""


class FlowAnswer(NamedTuple):
    allowed: bool
    keep: bool = False
    """Whether the project remembers the answer beyond this command."""
    why: str = ""
    """Reason for a refusal, if it is not just a negative answer."""
    lasting: bool = True
    """False: refused because no question could be asked; the next connection is judged anew."""
    rule: str = ""
    """The rule to remember, if it is one that the question offered (``preset.py:offers``)."""
    hour: bool = False
    """As in ``QueueDecision``."""


NOBODY = FlowAnswer(False, why="nobody is there to be asked", lasting=False)


# --- as a journal event ---

_USER = regex(r"(?<=://)[^/?#\s]*@")
_QUERY = regex(r"(://[^?#\s'\"<>]*)[?#][^\s'\"<>]*")


def flow_to_json(flow: Flow, *, redact: bool = True) -> dict[str, Any]:
    """Return the flow as JSON values, without empty ones. ``redact``: users and queries are shown as an ellipsis."""
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
    """Return the flow that ``flow_to_json`` wrote; keys from a newer mudroom are ignored. Raise ValueError if it is
    invalid."""
    fields: dict[str, Any] = {}
    for name, field_type in _FIELDS.items():
        if name not in data:
            if name not in Flow._field_defaults and name not in ("rule", "reason"):
                raise ValueError(f"a flow without {name}")
            continue
        value = data[name]
        if field_type is float and type(value) is int:
            value = float(value)
        if type(value) is not field_type or value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"a flow whose {name} is {value!r}")
        fields[name] = value
    for name in _HEADERS:
        if name in data:
            fields[name] = _headers(name, data[name])
    return Flow(**{"rule": "", "reason": "", **fields})


_FIELDS: dict[str, type] = {
    "started": int, "way": str, "host": str, "port": int, "verdict": str, "rule": str, "reason": str, "address": str,
    "method": str, "path": str, "status": int, "sent": int, "received": int, "seconds": float, "error": str,
    "version": str, "repeats": int,
}  # fmt: skip
_HEADERS = ("request", "response")
_CHOICES: dict[str, tuple[str, ...]] = {"way": get_args(Way), "verdict": ("allow", "deny")}


def _headers(name: str, value: Any) -> Fields:
    pairs = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(pair, list | tuple) and [type(item) for item in pair] == [str, str] for pair in pairs):
        raise ValueError(f"a flow whose {name} is {value!r}")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _redacted(fields: Fields) -> Fields:
    return tuple(
        (name, _without_query(value) if value.startswith("/") else _without_secrets(value)) for name, value in fields
    )


def _without_user(host: str) -> str:
    """Return a host as written by a client, without its user."""
    return "…@" + host.rpartition("@")[2] if "@" in host else host


def _without_user_in(text: str) -> str:
    return _USER.sub("…@", text)


def _without_query(path: str) -> str:
    start = min((i for i in (path.find("?"), path.find("#")) if i >= 0), default=-1)
    return path if start < 0 else path[:start] + "?…"


def _without_secrets(text: str) -> str:
    """Return a sentence with users and queries removed from its URLs."""
    return _QUERY.sub(r"\1?…", _without_user_in(text))
