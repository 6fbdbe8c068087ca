"""Events as OpenTelemetry log records in OTLP/JSON. Pure.

Format: opentelemetry.io/docs/specs/otlp (JSON protobuf encoding: lowerCamelCase keys, 64-bit numbers as strings, enums
as numbers) and its collectors' file format: one ``LogsData`` a line. ``timeUnixNano`` is the wall clock's time;
``observedTimeUnixNano`` is the event's time in the chain, which never decreases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.journal.event import Event, data_of, wall
from mudroom.typing import Any

_SEVERITY = ((9, "INFO"), (13, "WARN"), (17, "ERROR"))
"""SeverityNumber in opentelemetry/proto/logs/v1/logs.proto."""
_INT64 = 1 << 63

Record = tuple[Event, str, int]
"""An event, its line for display, and 0 (ordinary), 1 (notable) or 2 (refused, failed)."""


def logs_data(records: Iterable[Record], project: str, version: str) -> dict[str, Any]:
    """Return a ``LogsData``. ``version``: mudroom's version."""
    resource = {"service.name": "mudroom", "service.version": version, "mudroom.project": project}
    scope = {
        "scope": {"name": "mudroom.journal", "version": version},
        "logRecords": [_record(record) for record in records],
    }
    return {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": [scope]}]}


def _record(record: Record) -> dict[str, Any]:
    event, text, gravity = record
    number, name = _SEVERITY[gravity]
    own = {"mudroom.number": event.number, "mudroom.digest": event.digest, "mudroom.fork": event.fork}
    data = {f"mudroom.{event.kind}.{key}": value for key, value in data_of(event).items()}
    return {
        "timeUnixNano": str(max(0, wall(event))),
        "observedTimeUnixNano": str(max(0, event.time)),
        "severityNumber": number,
        "severityText": name,
        "eventName": _text(f"mudroom.{event.kind}"),
        "body": {"stringValue": _text(text)},
        "attributes": _attributes({key: value for key, value in (own | data).items() if value not in (None, "")}),
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": _text(key), "value": _any(value)} for key, value in values.items()]


def _any(value: Any) -> dict[str, Any]:
    """Return an ``AnyValue``; an empty one for None."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -_INT64 <= value < _INT64 else {"stringValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if value - value == 0 else str(value).replace("nan", "NaN")}
    if isinstance(value, str):
        return {"stringValue": _text(value)}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_any(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {}


def _text(value: str) -> str:
    """Replace characters that are not valid UTF-8, which protocol buffers require."""
    return value.encode("utf-8", "replace").decode()
