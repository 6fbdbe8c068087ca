"""The journal: one event beside a plain SQLite insert of the same row, a long one verified, and commands beside it."""

from __future__ import annotations

import glob
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from bench.measure import (
    Contestant,
    Finding,
    Lap,
    against,
    at_most,
    at_most_times,
    clocked,
    interleave,
    seconds_of,
    timed,
)
from bench.place import Scale, discard, fill, new_place, run
from mudroom.session import Session
from mudroom.vault.journal.journal import Journal

_EVENT: dict[str, Any] = {
    "command": ["npm", "install", "--save-dev", "typescript"],
    "cwd": "/home/somebody/project",
    "agent": "claude-code",
    "verdict": {
        "action": "allow",
        "classes": ["mutating", "networked"],
        "rule": "default",
        "reason": "installs packages",
    },
    "level": 1,
    "credentials": [],
    "exit_code": 0,
    "timed_out": False,
    "duration_ms": 1234,
    "changed": 142,
    "notes": ["2 secrets are shown empty: .env, .npmrc (--show PATH, or secrets.show in the policy)"],
    "denials": [],
}
_AT_ONCE = 100
"""Events of one lap; the laps are given for each of them."""
_RATE = 1000
_UNPACKED = "gzip -dc of it"
_QUIET, _BUSY = "the journal quiet", "ours"

_WRITER = """
import json, os, sys, time
from mudroom.vault.journal.journal import Journal
journal, event, rate = Journal(sys.argv[1].encode()), json.loads(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
start, count = time.monotonic(), 0
while True:
    if os.path.exists(sys.argv[4]):
        start, count = time.monotonic(), 0
    for _ in range(max(0, int((time.monotonic() - start) * rate) - count)):
        journal.append("run", "beside", event, time=time.time_ns())
        count += 1
    time.sleep(0.002)
"""


def journals(base: bytes, scale: Scale) -> Iterator[Finding]:
    with new_place(base, "journal") as place:
        journal, database = Journal(place.root + b"/journal.db"), _plain(place.root + b"/plain.db")
        found = interleave([_appending(journal), _inserting(database), _at_once(journal)], scale.commands // 2, 2)
        plain = against(found, ["a plain SQLite insert of the same row"])
        yield Finding(
            "journal", "an event: redacted, chained, in a transaction", found["one"], at_most(1e-3, "1 ms"), plain
        )
        yield Finding("journal", f"the same, {_AT_ONCE} in one transaction, each", found["many"], None, plain)
        database.close()
        wanted = scale.tree * 5
        while journal.head().number < wanted:
            journal.append_all([("run", "f", _EVENT)] * 1000, time=time.time_ns())
        whole = interleave([lambda: [("verify", seconds_of(journal.examine))]], 3, 0)
        limit = at_most(5.0, "5 s")
        yield Finding("journal", f"verify {journal.head().number:,} events", whole["verify"], limit)
        upto = journal.head().number // 2
        seconds, _archive = clocked(lambda: journal.archive(upto))
        moved = interleave([lambda: [("archive", seconds)]], 1, 0)
        yield Finding("journal", f"move {upto:,} of them to an archive", moved["archive"])
        packed = glob.glob(os.fsdecode(place.root) + "/journal/*.gz")
        found = interleave([_older(journal, upto), timed(_UNPACKED, ["gzip", "-dc", *packed])], scale.looks)
        yield Finding("journal", "a page of events in the archive", found["older"], None, against(found, [_UNPACKED]))
        journal.close()
    yield from _beside(base, scale)


def _older(journal: Journal, before: int) -> Contestant:
    """As somebody reads on who has come to that event."""

    def look() -> Iterator[Lap]:
        yield "older", seconds_of(lambda: list(islice(journal.newest(before=before), _AT_ONCE)))

    return look


def _plain(path: bytes) -> sqlite3.Connection:
    database = sqlite3.connect(os.fsdecode(path), isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE event (number INTEGER PRIMARY KEY, time INT, kind TEXT, fork TEXT, data TEXT)")
    return database


def _appending(journal: Journal) -> Contestant:
    def one() -> Iterator[Lap]:
        seconds = seconds_of(lambda: [journal.append("run", "f", _EVENT, time=time.time_ns()) for _ in range(_AT_ONCE)])
        yield "one", seconds / _AT_ONCE

    return one


def _at_once(journal: Journal) -> Contestant:
    def many() -> Iterator[Lap]:
        yield "many", seconds_of(lambda: journal.append_all([("run", "f", _EVENT)] * _AT_ONCE, time=1)) / _AT_ONCE

    return many


def _inserting(database: sqlite3.Connection) -> Contestant:
    insert = "INSERT INTO event (time, kind, fork, data) VALUES (?, 'run', 'f', ?)"

    def plain() -> Iterator[Lap]:
        seconds = seconds_of(
            lambda: [database.execute(insert, (time.time_ns(), json.dumps(_EVENT))) for _ in range(_AT_ONCE)]
        )
        yield "a plain SQLite insert of the same row", seconds / _AT_ONCE

    return plain


def _beside(base: bytes, scale: Scale) -> Iterator[Finding]:
    """Commands of a session while another process appends."""
    with new_place(base, "beside") as place:
        fill(place.project, 10)
        quiet = place.root + b"/quiet"
        with place.session() as session, _writer(session, quiet):
            contestants = [_command(session, quiet, busy=True), _command(session, quiet, busy=False)]
            found = interleave(contestants, scale.commands, warm_up=5)
    what = f"true in a session, {_RATE:,} events a second from another process"
    yield Finding("journal", what, found[_BUSY], None, against(found, [_QUIET], {_QUIET: at_most_times(1.1)}))


def _command(session: Session, quiet: bytes, *, busy: bool) -> Contestant:
    def one() -> Iterator[Lap]:
        if busy and os.path.exists(quiet):
            os.unlink(quiet)
        elif not busy:
            os.close(os.open(quiet, os.O_WRONLY | os.O_CREAT, 0o600))
        time.sleep(0.02)  # until the writer has seen it
        seconds, result = clocked(lambda: run(session, "/bin/true"))
        yield _BUSY if busy else _QUIET, seconds
        discard(session, result)

    return one


@contextmanager
def _writer(session: Session, quiet: bytes) -> Iterator[None]:
    """Another process that appends as fast as ``_RATE`` says, unless there is a file ``quiet``."""
    path = os.fsdecode(session.vault.path + b"/journal.db")
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WRITER, path, json.dumps(_EVENT), str(_RATE), os.fsdecode(quiet)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()
