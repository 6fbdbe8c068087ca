"""An event of the journal in words for people. Every kind that mudroom writes has a row here; a test keeps it so.

What a row does not know is left out, what is missing is no error: the journal may be older or newer than this mudroom.
Nothing of it is a terminal's command: names and texts of commands are shown escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mudroom.core.journal.event import Event, data_of
from mudroom.core.journal.event_filter import action_of
from mudroom.core.network.flow import Flow, flow_from_json
from mudroom.core.tree.path import show

Data = dict[str, Any]
Row = Callable[[Data], list[str]]


def words(event: Event) -> list[str]:
    data = data_of(event)
    found = [word for word in ROWS.get(event.kind, _any)(data) if word]
    if "clock" in data:
        found.append("(its clock was behind)")
    return found


_LONGEST = 300
"""Characters of a command; ``log --json`` has all of it."""


def gravity(event: Event) -> int:
    """0: as it goes; 1: to be noticed; 2: refused, failed or missing."""
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
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)")


def _count(data: Data, key: str, text: str) -> str:
    """``text`` with the number of what is under ``key``, or the number that is there; empty for none."""
    value = data.get(key)
    number = len(value) if isinstance(value, list | tuple | dict) else value
    return text.format(number) if isinstance(number, int) and number else ""


def _named(data: Data, *keys: str) -> list[str]:
    return [f"{key}={_value(data[key])}" for key in keys if data.get(key) not in (None, "", [], 0, False)]


def _value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return shown(", ".join(value))
    return shown(value)


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
    told = ": ".join(shown(one) for one in (action, verdict.get("reason")) if one)
    return told + (f" ({shown(verdict['rule'])})" if verdict.get("rule") else "")


def _run(data: Data) -> list[str]:
    return [
        _command(data),
        *_named(data, "agent"),
        _verdict(data),
        *_named(data, "checkpoint"),
        "level 0: no isolation" if data.get("level") == 0 else "",
        f"exit {shown(data['exit_code'])}" if data.get("exit_code") else "",
        "out of time" if data.get("timed_out") else "",
        _count(data, "changed", "{:,} changed"),
        _duration(data),
        _count(data, "denials", "{:,} refused: mudroom policy why"),
        *_named(data, "credentials"),
        _count(data, "notes", "{:,} notes"),
    ]


def _refused(data: Data) -> list[str]:
    instead = data.get("instead") or (data["verdict"].get("instead") if isinstance(data.get("verdict"), dict) else "")
    verdict = _verdict(data) or f"deny: {shown(data.get('reason', ''))}"
    return [_command(data), *_named(data, "agent"), verdict, f"instead: {shown(instead)}" if instead else ""]


def _approval(data: Data) -> list[str]:
    answer = data.get("answer", data.get("allow"))
    if isinstance(answer, dict):
        data, answer = {**data, **answer}, answer.get("allow")
    said = {True: "allowed", False: "refused", None: "asked"}.get(answer) or shown(answer)
    return [
        _command(data),
        *_named(data, "agent"),
        _verdict(data),
        said + (", always" if data.get("keep") else "") + (f" by {shown(data['by'])}" if data.get("by") else ""),
        shown(data.get("reason", "")),
        *_named(data, "question", "rule", "pattern"),
    ]


def _flow(data: Data) -> list[str]:
    try:
        return [told(flow_from_json({key: value for key, value in data.items() if key != "clock"}))]
    except ValueError as error:
        return [f"unreadable: {shown(error)}"]


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


def _any(data: Data) -> list[str]:
    """Of whatever there is: the command first, then names and values."""
    found = [_command(data)] if "command" in data else []
    return found + [
        f"{shown(key)}={_value(value)}"
        for key, value in data.items()
        if key not in ("command", "clock") and value not in (0, False, [], None, "", {})
    ]


ROWS: dict[str, Row] = {
    "agent": lambda data: [*_named(data, "agent", "state"), *_rest(data, "agent", "state")],
    "apply": _applied,
    "approval": _approval,
    "background": lambda data: [_command(data), *_named(data, "id", "agent", "checkpoint")],
    "background_end": lambda data: [
        *_named(data, "id"),
        f"exit {shown(data.get('exit_code', '?'))}",
        "out of time" if data.get("timed_out") else "",
        *_rest(data, "id", "exit_code", "timed_out"),
    ],
    "background_notes": _any,
    "checkpoint": lambda data: [*_named(data, "checkpoint"), "(by itself)" if data.get("automatic") else ""],
    "commits": lambda data: _named(data, "branch", "commits", "head", "before"),
    "degrade": lambda data: [f"to {shown(data.get('to', '?'))}", shown(data.get("why", ""))],
    "discard": _any,
    "edit": lambda data: [_count(data, "changed", "{:,} changed by file tools")],
    "export": lambda data: [_count(data, "bytes", "{:,} bytes")],
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
    "rollback": lambda data: [f"to {shown(data.get('checkpoint', '?'))}", *_named(data, "undo")],
    "run": _run,
    "undo": _applied,
    "unmount": lambda data: [_count(data, "changed", "{:,} changed")],
    "verdict": _refused,
    "verify": lambda data: [_command(data), f"exit {shown(data.get('exit_code', '?'))}"],
}


def _rest(data: Data, *told: str) -> list[str]:
    return _any({key: value for key, value in data.items() if key not in told})


# --- flows ---


def told(flow: Flow) -> str:
    """A flow for people, without its time. Nothing of it is a terminal's command."""
    host = f"[{flow.host}]" if ":" in flow.host else flow.host
    words = [f"{flow.verdict:<5}", flow.way, shown(f"{host}:{flow.port}" if flow.port else host)]
    if flow.method:
        words.append(shown(f"{flow.method} {flow.path}".strip()) + (f" {flow.status}" if flow.status else ""))
    if flow.verdict == "allow":
        words.append(f"{flow.sent:,} B out, {flow.received:,} B in, {flow.seconds:.2f} s")
    else:
        words.append(shown(flow.reason))
    if flow.error:
        words.append(shown(flow.error))
    return "  ".join(words)


def shown(value: Any) -> str:
    """One line, printable. Half a character, which JSON can say, is none of a file's name."""
    text = str(value)
    try:
        return show(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return show(text.encode("utf-8", "backslashreplace"))
