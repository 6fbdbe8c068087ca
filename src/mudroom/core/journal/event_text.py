"""Journal events as text for display. Every kind that mudroom writes has a row in the table; a test checks that.

Unknown fields are left out, and missing fields are not an error: the journal can come from an older or newer mudroom.
Control characters in names and commands are escaped.
"""

from __future__ import annotations

from collections.abc import Callable

from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import action_of
from mudroom.core.network.flow import Flow, flow_from_json
from mudroom.core.text.answer_place import answered_by
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_text
from mudroom.typing import Any

Data = dict[str, Any]
Row = Callable[[Data], list[str]]


def event_words(event: Event) -> list[str]:
    data = data_of(event)
    parts = [word for word in ROWS.get(event.kind, _any)(data) if word]
    if "clock" in data:
        parts.append("(its clock was behind)")
    return parts


_LONGEST = 300
"""About how many characters are shown of a command; ``log --json`` has the whole command."""


def gravity(event: Event) -> int:
    """Return 0 for ordinary events, 1 for notable ones, 2 for refusals, failures and gaps."""
    data = data_of(event)
    if event.kind in ("gap", "verdict") or action_of(data) == "deny" or data.get("conflicts"):
        return 2
    if event.kind == "approval" and not (data.get("answer", data.get("allow"))):
        return 2
    if event.kind in ("degrade", "recover", "approval") or data.get("denials") or data.get("timed_out"):
        return 1
    return 1 if data.get("exit_code") else 0


def _command(data: Data) -> str:
    value = data.get("command", "")
    if isinstance(value, list):
        return show_text([str(word) for word in value], _LONGEST)
    return printable(str(value)[:_LONGEST])


def _count(data: Data, key: str, text: str) -> str:
    """Format ``text`` with the length of the value under ``key``, or with the value itself if it is a number. Return an
    empty string for zero."""
    number = _length(data, key)
    return text.format(number) if number else ""


def _length(data: Data, key: str) -> int:
    value = data.get(key)
    number = len(value) if isinstance(value, list | tuple | dict) else value
    return number if isinstance(number, int) else 0


def _named(data: Data, *keys: str) -> list[str]:
    return [f"{key}={_value(data[key])}" for key in keys if data.get(key) not in (None, "", [], 0, False)]


def _value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return printable(", ".join(value))
    return printable(value)


def _duration(data: Data) -> str:
    value = data.get("duration_ms")
    if not isinstance(value, int | float):
        return ""
    return f"{value:g} ms" if value < 1000 else f"{value / 1000:,.1f} s"


def _verdict(data: Data) -> str:
    verdict = data.get("verdict", data)
    action = action_of(data)
    if action in (None, "allow") or not isinstance(verdict, dict):
        return ""
    text = ": ".join(printable(part) for part in (action, verdict.get("reason")) if part)
    return text + (f" ({printable(verdict['rule'])})" if verdict.get("rule") else "")


def _run(data: Data) -> list[str]:
    return [
        _command(data),
        *_named(data, "agent"),
        _verdict(data),
        *_named(data, "checkpoint"),
        "level 0: no isolation" if data.get("level") == 0 else "",
        f"exit {printable(data['exit_code'])}" if data.get("exit_code") else "",
        "out of time" if data.get("timed_out") else "",
        _count(data, "changed", "{:,} changed"),
        _duration(data),
        _count(data, "denials", "{:,} refused: mudroom policy why"),
        *_named(data, "credentials"),
        _count(data, "notes", "1 note" if _length(data, "notes") == 1 else "{:,} notes"),
    ]


def _refused(data: Data) -> list[str]:
    instead = data.get("instead") or (data["verdict"].get("instead") if isinstance(data.get("verdict"), dict) else "")
    verdict = _verdict(data) or f"deny: {printable(data.get('reason', ''))}"
    return [_command(data), *_named(data, "agent"), verdict, f"instead: {printable(instead)}" if instead else ""]


def _approval(data: Data) -> list[str]:
    answer = data.get("answer", data.get("allow"))
    if isinstance(answer, dict):
        data, answer = {**data, **answer}, answer.get("allow")
    outcome = {True: "allowed", False: "refused", None: "asked"}.get(answer) or printable(answer)
    return [
        _command(data),
        *_named(data, "agent"),
        _verdict(data),
        outcome
        + (", always" if data.get("keep") else "")
        + (answered_by(printable(data["by"])) if data.get("by") else ""),
        printable(data.get("reason", "")),
        *_named(data, "question", "rule", "pattern"),
    ]


def _flow(data: Data) -> list[str]:
    try:
        return [flow_text(flow_from_json({key: value for key, value in data.items() if key != "clock"}))]
    except ValueError as error:
        return [f"unreadable: {printable(error)}"]


def _applied(data: Data) -> list[str]:
    return [
        *_named(
            data, "apply", "outcome", "changed", "written", "removed", "merged", "kept", "again", "conflicts", "undo"
        )
    ]


def _gap(data: Data) -> list[str]:
    last = data.get("last")
    if not isinstance(last, int):
        return ["the end of the journal that was kept beside it was missing when this was written"]
    return [f"events up to {last} were missing at the end of the journal when this was written"]


def _arrived(data: Data) -> list[str]:
    claims = data.get("claims")
    claimed = claims.get("exit_code") if isinstance(claims, dict) else None
    return [
        "refused" if data.get("problem") else "late" if data.get("state") == "late" else "",
        *_named(data, "errand", "worker", "wanted", "changed", "strangers"),
        f"its worker says: exit {printable(claimed)}" if claimed is not None else "",
        printable(data.get("problem", "")),
    ]


def _any(data: Data) -> list[str]:
    """Show all fields: the command first, then names and values."""
    parts = [_command(data)] if "command" in data else []
    return parts + [
        f"{printable(key)}={_value(value)}"
        for key, value in data.items()
        if key not in ("command", "clock") and value not in (0, False, [], None, "", {})
    ]


ROWS: dict[str, Row] = {
    "agent": lambda data: [*_named(data, "agent", "state"), *_rest(data, "agent", "state")],
    "apply": _applied,
    "approval": _approval,
    "arrive": _arrived,
    "background": lambda data: [_command(data), *_named(data, "id", "agent", "checkpoint")],
    "background_end": lambda data: [
        *_named(data, "id"),
        f"exit {printable(data.get('exit_code', '?'))}",
        "out of time" if data.get("timed_out") else "",
        *_rest(data, "id", "exit_code", "timed_out", "paths", "paths_left_out"),
    ],
    "background_notes": _any,
    "checkpoint": lambda data: [*_named(data, "checkpoint"), "(by itself)" if data.get("automatic") else ""],
    "commits": lambda data: _named(data, "branch", "commits", "head", "before"),
    "degrade": lambda data: [f"to {printable(data.get('to', '?'))}", printable(data.get("why", ""))],
    "discard": _any,
    "effect": lambda data: _named(data, "effect", "remote", "names", "state", "apply", "why"),
    "edit": lambda data: [_count(data, "changed", "{:,} changed by file tools")],
    "export": lambda data: [_count(data, "bytes", "1 byte" if _length(data, "bytes") == 1 else "{:,} bytes")],
    "flow": _flow,
    "fork": lambda data: _named(data, "parent", "at"),
    "gap": _gap,
    "gc": lambda data: _named(data, "applies", "checkpoints", "forks", "layers", "snapshots", "leftovers", "bytes"),
    "import": lambda data: _named(data, "changed", "strangers"),
    "mount": lambda data: _named(data, "kind", "writable"),
    "net": _any,
    "policy": _any,
    "recover": _applied,
    "redo": _applied,
    "rename": lambda data: _named(data, "was"),
    "rollback": lambda data: [f"to {printable(data.get('checkpoint', '?'))}", *_named(data, "undo")],
    "run": _run,
    "settings": _any,
    "try": lambda data: [
        _command(data),
        *_named(data, "try", "attempts", "passed", "distinct", "best", "end"),
    ],
    "undo": _applied,
    "unmount": lambda data: [_count(data, "changed", "{:,} changed")],
    "verdict": _refused,
    "verify": lambda data: [_command(data), f"exit {printable(data.get('exit_code', '?'))}"],
}


def _rest(data: Data, *shown_keys: str) -> list[str]:
    return _any({key: value for key, value in data.items() if key not in shown_keys})


# --- flows ---


def flow_text(flow: Flow) -> str:
    """Return a flow as text without its time, with control characters escaped."""
    host = f"[{flow.host}]" if ":" in flow.host else flow.host
    parts = [f"{flow.verdict:<5}", flow.way, printable(f"{host}:{flow.port}" if flow.port else host)]
    if flow.method:
        parts.append(printable(f"{flow.method} {flow.path}".strip()) + (f" {flow.status}" if flow.status else ""))
    if flow.verdict == "allow":
        parts.append(f"{flow.sent:,} B out, {flow.received:,} B in, {flow.seconds:.2f} s")
    else:
        parts.append(printable(flow.reason))
    if flow.repeats:
        parts.append(f"{flow.repeats + 1:,} times in {flow.seconds:.0f} s")
    if flow.error:
        parts.append(printable(flow.error))
    return "  ".join(parts)


def printable(value: Any) -> str:
    """Return a value as a printable line. An unpaired surrogate, which JSON allows, is not taken for an escaped byte in
    a file name."""
    text = str(value)
    try:
        return show(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return show(text.encode("utf-8", "backslashreplace"))
