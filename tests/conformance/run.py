"""Runs attempts where they are to be tried: each in a process and a directory of its own, a line of JSON for each.

    python3 -I -S -c 'import sys; sys.path.insert(0, "."); from conformance.run import main; main()' SUITE NAME,NAME...

beside ``world.json``, in the project. Where one is tried at a time, what it has left has ended before the next;
otherwise what it has left may go on when this has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from typing import Any

from .attempt import Attempt, Table

SECRET = re.compile(r"CANARY-[0-9a-f]+")


def main() -> None:
    os.environ["MUDROOM_ATTEMPTS"] = str(os.getpid())
    suite, names = sys.argv[1:3]
    importlib.import_module(f"{__package__}.{suite}.groups")  # fills the table
    rows = importlib.import_module(f"{__package__}.{suite}.attempt")
    table: Table = rows.TABLE
    with open("world.json") as stream:
        told = json.load(stream)
    waiting = list(reversed(names.split(",")))
    running: dict[int, tuple[str, int]] = {}
    while waiting or running:
        while waiting and len(running) < table.at_once:
            name = waiting.pop()
            reading, pid = begun(table, table[name], rows.world(told, name))
            running[pid] = (name, reading)
        pid, status = os.wait()
        if pid not in running:
            continue
        name, reading = running.pop(pid)
        os.set_blocking(reading, table.at_once == 1)
        sys.stdout.write(json.dumps({"name": name, **heard(reading, status)}) + "\n")
        sys.stdout.flush()


def begun(table: Table, attempt: Attempt, told: Any) -> tuple[int, int]:
    """The attempt, in a child of ours: where its answer will be, and its number."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            signal.alarm(table.patience)
            os.makedirs(f"work/{attempt.name}", exist_ok=True)
            os.chdir(f"work/{attempt.name}")
            os.write(writing, json.dumps(made(attempt, told)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return reading, pid


def heard(reading: int, status: int) -> dict[str, str]:
    answer = b""
    try:
        while part := os.read(reading, 65536):
            answer += part
    except BlockingIOError:
        pass  # what it has left has the pipe, too
    os.close(reading)
    if answer:
        found: dict[str, str] = json.loads(answer)
        return found
    return {"evidence": "", "error": f"killed by signal {status & 0x7F}" if status & 0x7F else "no answer"}


def made(attempt: Attempt, told: Any) -> dict[str, str]:
    try:
        null = os.open("/dev/null", os.O_WRONLY)
        for descriptor in (1,) if attempt.alone else (1, 2):
            os.dup2(null, descriptor)
        os.close(null)
        evidence = str(attempt.body(told) or "")
    except OSError as error:
        return {"evidence": "", "error": error.strerror or repr(error)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the test fails for it
        return {"evidence": "", "error": f"mistaken: {error!r}"}
    if attempt.proof == "secret":
        evidence = " ".join(sorted(set(SECRET.findall(evidence))))
    return {"evidence": evidence[:2000], "error": ""}
