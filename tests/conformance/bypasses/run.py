"""Runs attempts where they are to be tried: each in a process of its own, some at a time, a line of JSON for each.

    python3 -I -S -c 'import sys; sys.path.insert(0, "."); from bypasses.run import main; main()' NAME,NAME...

beside ``world.json``, in the project. Those of ``afterwards`` go on when this has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any
from urllib.parse import urlsplit

from .attempt import TABLE, Attempt, World
from .groups import GROUPS

PATIENCE = 40
"""Seconds for one attempt."""
_AT_ONCE = 24


def main() -> None:
    assert GROUPS, "the modules of the groups fill the table"
    os.environ["MUDROOM_ATTEMPTS"] = str(os.getpid())
    with open("world.json") as stream:
        told = json.load(stream)
    waiting = list(reversed(sys.argv[1].split(",")))
    running: dict[int, tuple[str, int]] = {}
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            name = waiting.pop()
            reading, pid = begun(TABLE[name], world(told, name))
            running[pid] = (name, reading)
        pid, status = os.wait()
        if pid not in running:
            continue
        name, reading = running.pop(pid)
        sys.stdout.write(json.dumps({"name": name, **heard(reading, status)}) + "\n")
        sys.stdout.flush()


def world(told: dict[str, Any], name: str) -> World:
    slot = sorted(TABLE).index(name) + 1
    where = urlsplit(os.environ.get("http_proxy", "http://127.0.0.1:3128"))
    proxy = (where.hostname or "", where.port or 0)
    captures = proxy[1] == 3128
    return World(name=name, slot=slot, proxy=proxy, captures=captures, server="127.0.0.1", **told)


def begun(attempt: Attempt, told: World) -> tuple[int, int]:
    """The attempt, in a child of ours: where its answer will be, and its number."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            signal.alarm(PATIENCE)
            os.write(writing, json.dumps(made(attempt, told)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return reading, pid


def heard(reading: int, status: int) -> dict[str, str]:
    os.set_blocking(reading, False)
    try:
        answer = os.read(reading, 65536)
    except BlockingIOError:
        answer = b""
    os.close(reading)
    if answer:
        found: dict[str, str] = json.loads(answer)
        return found
    return {"evidence": "", "error": f"killed by signal {status & 0x7F}" if status & 0x7F else "no answer"}


def made(attempt: Attempt, told: World) -> dict[str, str]:
    try:
        return {"evidence": str(attempt.body(told) or "")[:2000], "error": ""}
    except OSError as error:
        return {"evidence": "", "error": error.strerror or repr(error)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the test fails for it
        return {"evidence": "", "error": f"mistaken: {error!r}"}
