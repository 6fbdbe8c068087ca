"""Inspected flows as an HTTP archive (HAR 1.2), which browsers' developer tools and other programs read; and the
headers that may be kept.

Rules: pure. For inherently secret headers only the name is kept; bodies and queries are never kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.network.flow import Fields, Flow
from mudroom.core.text.regex import regex
from mudroom.typing import Any

HIDDEN = "(not kept)"
_SECRET = regex(r"(?i)authorization|cookie|token|secret|passw|api-?key|signature|credential")
_LONGEST_VALUE = 1024
MOST = 64
"""Headers that are kept for each message."""


def keep_headers(fields: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the headers that a flow keeps."""
    return tuple(
        (name, HIDDEN if _SECRET.search(name) else value.decode("latin-1")[:_LONGEST_VALUE])
        for name, value in ((name.decode("latin-1").lower(), value) for name, value in fields[:MOST])
    )


def to_har(flows: Iterable[Flow], version: str) -> dict[str, Any]:
    """Return the archive as JSON values. It holds only HTTP exchanges, plain and inspected. ``version``: mudroom's."""
    entries = [_entry(flow) for flow in flows if flow.method and flow.way in ("http", "https")]
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "mudroom", "version": version},
            "entries": sorted(entries, key=lambda entry: str(entry["startedDateTime"])),
        }
    }


def _entry(flow: Flow) -> dict[str, Any]:
    spent = round(flow.seconds * 1000, 3)
    entry: dict[str, Any] = {
        "startedDateTime": _date(flow.started),
        "time": spent,
        "request": {
            "method": flow.method,
            "url": _url(flow),
            "httpVersion": flow.version or "HTTP/1.1",
            "cookies": [],
            "headers": _headers(flow.request),
            "queryString": [],
            "headersSize": -1,
            "bodySize": flow.sent if flow.request else -1,
        },
        "response": {
            "status": flow.status,
            "statusText": "",
            "httpVersion": flow.version or "HTTP/1.1",
            "cookies": [],
            "headers": _headers(flow.response),
            "content": {"size": flow.received, "mimeType": dict(flow.response).get("content-type", "")},
            "redirectURL": dict(flow.response).get("location", ""),
            "headersSize": -1,
            "bodySize": flow.received,
        },
        "cache": {},
        "timings": {"send": 0, "wait": spent, "receive": 0},
        "_verdict": flow.verdict,
        "_rule": flow.rule,
        "_reason": flow.reason,
    }
    if flow.repeats:
        entry["_repeats"] = flow.repeats
    if flow.address:
        entry["serverIPAddress"] = flow.address
    if flow.error:
        entry["response"]["_error"] = flow.error
    return entry


def _headers(fields: Fields) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in fields]


def _url(flow: Flow) -> str:
    host = f"[{flow.host}]" if ":" in flow.host else flow.host
    usual = {"http": 80, "https": 443}[flow.way]
    return f"{flow.way}://{host}{'' if flow.port == usual else f':{flow.port}'}{flow.path}"


def _date(nanoseconds: int) -> str:
    """Return ISO 8601 in UTC with milliseconds; the date is computed by the civil calendar, without a time zone
    library."""
    milliseconds = nanoseconds // 1_000_000
    seconds, rest = divmod(milliseconds, 1000)
    days, seconds = divmod(seconds, 86400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    left = day - (365 * year + year // 4 - year // 100)
    month = (5 * left + 2) // 153
    date = left - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    return f"{year:04}-{month:02}-{date:02}T{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}.{rest:03}Z"
