"""``mudroom log export``: the journal as JSON lines for other programs."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mudroom.cli.terminal.terminal import output_error
from mudroom.core.journal.event import Event, data_of, wall
from mudroom.typing import Any

Write = Callable[[str], object]


def export(events: Iterable[Event], path: str | None) -> int:
    """Write the events, one JSON object a line, and return their number. ``path`` None or ``-`` is stdout. A file is
    written completely or not at all."""
    count = 0
    with _open_output(path) as write:
        for event in events:
            write(json.dumps(as_json(event)) + "\n")
            count += 1
    return count


def iso(event: Event) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall(event) // 10**9))


def as_json(event: Event) -> dict[str, Any]:
    """Return an event in the form that ``log --json`` prints."""
    return {
        "number": event.number,
        "time": iso(event),
        "time_ns": event.time,
        "kind": event.kind,
        "fork": event.fork,
        "data": data_of(event),
        "digest": event.digest,
    }


@contextmanager
def _open_output(path: str | None) -> Iterator[Write]:
    if path in (None, "-"):
        try:
            yield sys.stdout.write
            sys.stdout.flush()
        except OSError as error:
            raise output_error(error) from None
        return
    assert path is not None
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):  # a pipe or a device is written to, not replaced
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w", encoding="utf-8", newline="") as stream:
            yield stream.write
        return
    temporary = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as stream:
            yield stream.write
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
