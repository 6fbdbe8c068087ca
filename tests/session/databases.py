"""Databases that run in a fork, and in forks that were made of it under load.

    PYTHONPATH=tests:tests/session python tests/session/databases.py [--times N] [--keep DIRECTORY] [DATABASE…]

prints the rows of docs/evidence/DATABASES.md. Run it as an ordinary user. No test is here: test_databases.py has them.

Each database has clients that move amounts between rows, so that a sum stays the same, and one that writes numbers:
a number goes to the file ``acknowledged`` when the server has confirmed it. File and database are of one moment in the
new fork: there the database must have every number up to that one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mudroom.ext.live.fork import fork_live
from mudroom.session import Session

SH = (b"/bin/sh", b"-ec")
PYTHON = "/usr/bin/python3"
SERVERS = "/usr/lib/postgresql/15/bin:/usr/lib/postgresql/16/bin:/usr/lib/postgresql/17/bin:/usr/sbin"

NUMBERS = """\
import os, subprocess, sys
statement, *client = sys.argv[1:]
asked = subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
number = 0
while True:
    number += 1
    asked.stdin.write((statement % ((number,) * statement.count("%d")) + "\\n").encode())
    asked.stdin.flush()
    if not asked.stdout.readline():
        sys.exit("no answer")
    with open("written", "w") as stream:
        stream.write(str(number))
    os.replace("written", "acknowledged")
"""
"""Written in place of ``numbers.py``: one statement after another, each with a line as its answer."""

TRANSFERS = """\
import os, random, sqlite3, sys
bank = sqlite3.connect(".db/bank", isolation_level=None, timeout=60)
numbers = sys.argv[1:] == ["numbers"]
number = 0
while True:
    number += 1
    bank.execute("begin immediate")
    if numbers:
        bank.execute("insert into numbers values (?)", (number,))
    else:
        for amount in (1, -1):
            bank.execute("update account set balance = balance + ? where id = ?", (amount, random.randrange(1000)))
    bank.execute("commit")
    if numbers:
        with open("written", "w") as stream:
            stream.write(str(number))
        os.replace("written", "acknowledged")
"""
SQLITE = """\
import sqlite3
bank = sqlite3.connect(".db/bank", timeout=60)
assert bank.execute("pragma integrity_check").fetchall() == [("ok",)]
assert bank.execute("select sum(balance), count(*) from account").fetchone() == (0, 1000)
print(bank.execute("select coalesce(max(id), 0), count(*) from numbers").fetchone())
"""


class Database(NamedTuple):
    """Scripts for /bin/sh, which run in a fork."""

    needs: tuple[str, ...]
    prepare: str
    """Makes an empty database in ``.db``."""
    serve: str
    """Runs the server in the foreground. Empty: there is none."""
    ready: str
    """Succeeds when the server answers."""
    fill: str
    loads: tuple[str, ...]
    """Clients that write until they are ended."""
    numbers: str
    check: str
    """Succeeds if the database is consistent; its last line has the highest number, and how many there are."""
    after: str = ":"
    """Succeeds if the files are whole when the server has ended."""


PSQL = "psql -h /tmp -U me -qtA -v ON_ERROR_STOP=1 bank"
MARIADB = "mariadb -S /tmp/db.sock -u root -N -B"
REDIS = "redis-cli -s /tmp/db.sock"
DATABASES = {
    "PostgreSQL": Database(
        ("initdb", "pgbench", "pg_amcheck"),
        "initdb -k -D .db -U me -A trust > made",
        "rm -f .db/postmaster.pid; exec postgres -D .db -c listen_addresses=127.0.0.1 -c unix_socket_directories=/tmp",
        "pg_isready -q -h /tmp",
        "createdb -h /tmp -U me bank; pgbench -h /tmp -U me -i -q -s 3 bank; "
        f"{PSQL} -c 'create table numbers (id int primary key)'",
        ("exec pgbench -h /tmp -U me -n -c 4 -T 100000 bank",),
        f"exec {PYTHON} numbers.py 'insert into numbers values (%d) returning id;' {PSQL}",
        f"""pg_amcheck -h /tmp -U me --install-missing --heapallindexed bank
        test 1 = "$({PSQL} -c 'select count(distinct sum) from (select sum(abalance) from pgbench_accounts
            union all select sum(bbalance) from pgbench_branches union all select sum(tbalance) from pgbench_tellers
            union all select coalesce(sum(delta), 0) from pgbench_history) as sums')"
        {PSQL} -c 'select coalesce(max(id), 0), count(*) from numbers'""",
        "pg_checksums --check -D .db",
    ),
    "MariaDB": Database(
        ("mariadb-install-db", "mariadbd", "innochecksum"),
        "mariadb-install-db --datadir=$PWD/.db --auth-root-authentication-method=normal --skip-test-db > made",
        "exec mariadbd --no-defaults --datadir=$PWD/.db --socket=/tmp/db.sock --bind-address=127.0.0.1",
        f"{MARIADB} -e 'select 1' > /dev/null 2>&1",
        f"""{MARIADB} -e "create database bank; use bank; create table numbers (id int primary key) engine=InnoDB;
        create table account (id int primary key, balance int not null) engine=InnoDB;
        insert into account select seq, 0 from seq_0_to_999" """,
        (f"while :; do {MARIADB} bank < moves.sql || :; done",) * 3,
        f"exec {PYTHON} numbers.py 'insert into numbers values (%d); select %d;' {MARIADB} -n bank",
        f"""{MARIADB} bank -e 'check table account, numbers extended' | grep -c 'OK$' | grep -qx 2
        test "0	1000" = "$({MARIADB} bank -e 'select sum(balance), count(*) from account')"
        {MARIADB} bank -e 'select coalesce(max(id), 0), count(*) from numbers'""",
        "for file in .db/*/*.ibd; do innochecksum $file; done",
    ),
    "Redis": Database(
        ("redis-server", "redis-cli", "redis-benchmark"),
        "mkdir .db",
        "[ ! -d .db/appendonlydir ] || redis-check-aof .db/appendonlydir/appendonly.aof.manifest > checked; "
        "exec redis-server --dir .db --appendonly yes --appendfsync everysec --save '' --port 6379 "
        "--unixsocket /tmp/db.sock",
        f"{REDIS} ping | grep -qx PONG",
        f"{REDIS} set numbers 0",
        (
            "exec redis-benchmark -s /tmp/db.sock -q -c 4 -r 1000 -n 1000000000 eval \"redis.call('hincrby', "
            "'account', ARGV[1], 1) redis.call('hincrby', 'account', ARGV[2], -1)\" 0 "
            "__rand_int__ __rand_int__ > moved",
        ),
        f"exec {PYTHON} numbers.py 'incr numbers' {REDIS}",
        f"""test 0 = "$({REDIS} eval "local sum = 0 for _, amount in ipairs(redis.call('hvals', 'account'))
            do sum = sum + amount end return sum" 0)"
        test "$({REDIS} hlen account)" -gt 100
        echo $({REDIS} get numbers) $({REDIS} get numbers)""",
        "redis-check-aof .db/appendonlydir/appendonly.aof.manifest",
    ),
    "SQLite": Database(
        (),
        f'mkdir .db; {PYTHON} -c \'import sqlite3; bank = sqlite3.connect(".db/bank"); bank.executescript('
        '"pragma journal_mode=wal; create table account (id integer primary key, balance integer); '
        'create table numbers (id integer primary key)"); '
        'bank.executemany("insert into account values (?, 0)", [(number,) for number in range(1000)]); bank.commit()\'',
        "",
        ":",
        ":",
        (f"exec {PYTHON} transfers.py",) * 2,
        f"exec {PYTHON} transfers.py numbers",
        f"{PYTHON} check.py | tr -d '(,)'",
    ),
}
MOVES = "".join(
    "start transaction; update account set balance = balance + 1 where id = {}; "
    "update account set balance = balance - 1 where id = {}; commit;\n".format(
        *sorted((number * 7 % 1000, number * 13 % 1000))
    )
    for number in range(5000)
)
FILES = {"numbers.py": NUMBERS, "transfers.py": TRANSFERS, "check.py": SQLITE, "moves.sql": MOVES}


class Forked(NamedTuple):
    """A fork that was made under load."""

    fork: float
    """Seconds that making it took."""
    start: float
    """Seconds until its server answered."""
    acknowledged: int
    present: int
    """Numbers in the database, from 1 on."""


def missing(database: Database) -> list[str]:
    """Return the programs that are not on this machine."""
    return [name for name in database.needs if not shutil.which(name, path=f"{SERVERS}:{os.environ['PATH']}")]


def script(text: str) -> tuple[bytes, ...]:
    return (*SH, f"PATH={SERVERS}:$PATH\n{text}".encode())


def ran(session: Session, fork: str, text: str) -> bytes:
    result = session.run(script(text), fork=fork, timeout=300)
    assert result.exit_code == 0, (text, result.exit_code, result.stdout[-2000:], result.stderr[-2000:])
    return result.stdout


def serve(session: Session, fork: str, database: Database) -> float:
    """Start a fork's server, wait until it answers, and return the seconds that took."""
    began = time.monotonic()
    if database.serve:
        server = session.start(script(database.serve), fork=fork)
        ran(session, fork, f"until {database.ready}; do sleep 0.01; done")
        assert server.poll() is None, server.output()
    return time.monotonic() - began


@contextmanager
def under_load(session: Session, fork: str, database: Database) -> Iterator[None]:
    """Run a database in the background of a new fork, with its clients."""
    ran(session, fork, database.prepare)
    serve(session, fork, database)
    ran(session, fork, database.fill)
    for text in (*database.loads, database.numbers):
        session.start(script(text), fork=fork)
    ran(session, fork, 'until [ "$(cat acknowledged)" -gt 200 ]; do sleep 0.1; done 2> errors')
    yield
    running = [started for started, ended in session.sandboxes.backgrounds(fork) if ended is None]
    assert len(running) == len(database.loads) + 1 + bool(database.serve), [
        session.background(started.id).output() for started, _ended in session.sandboxes.backgrounds(fork)
    ]
    session.sandboxes.end(fork)


def checked(session: Session, parent: str, name: str, database: Database, *, live: bool) -> Forked:
    """Make a fork of one under load, and check its database. Raise AssertionError if that is not consistent. ``live``:
    as ``fork new --live`` makes it."""
    began = time.monotonic()
    if live:
        fork_live(session, name, parent)
    else:
        session.forks.new(name, parent=parent)
    took = time.monotonic() - began
    acknowledged = int(ran(session, name, "cat acknowledged"))
    started = serve(session, name, database)
    highest, count = map(int, ran(session, name, database.check).splitlines()[-1].replace(b"|", b" ").split())
    assert highest == count, "a number is missing below another one"
    assert count >= acknowledged, f"{acknowledged - count} acknowledged numbers are missing"
    session.sandboxes.end(name, grace=60)
    ran(session, name, database.after)
    session.forks.discard(name)
    return Forked(took, started, acknowledged, count)


HEAD = """\
# Databases in forks

Made by

    PYTHONPATH=tests:tests/session python tests/session/databases.py --write

as an ordinary user. A server of Debian 12 runs in the background of a fork, with clients that move amounts between rows
and one that notes each number whose insertion the server has confirmed. Forks are made of it meanwhile, in turn by
`fork new --from` and `fork new --from --live`; in each the server is started on the copied files, and checked:

- PostgreSQL (with checksums; 4 clients of pgbench): its four sums are equal, `pg_amcheck --heapallindexed`, and
  `pg_checksums` when it has ended
- MariaDB (InnoDB; 3 clients): the sum is 0, `CHECK TABLE … EXTENDED`, and `innochecksum` of all tablespaces when it
  has ended
- Redis (append-only file, fsync every second; 4 clients): `redis-check-aof` before the start and at the end, the sum
  is 0
- SQLite (WAL; 2 clients): `PRAGMA integrity_check`, the sum is 0
- each: every number up to the confirmed one is there, and none is missing below another one

| database | consistent | confirmed and lost | fork, median and most | until it answers, median |
| --- | --- | --- | --- | --- |
"""
LIVE = "## From `--live` to an answer"
"""The section that tests/ext/live/figures.py writes."""
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/evidence/DATABASES.md"


def row(name: str, database: Database, times: int, root: Path) -> str:
    """Return the row of a database in the document. ``root``: an empty directory."""
    (root / "home").mkdir()
    (root / "project").mkdir()
    for file, text in FILES.items():
        (root / "project" / file).write_text(text)
    project, state, home = (os.fsencode(root / place) for place in ("project", "state", "home"))
    forks: list[Forked] = []
    with (
        Session.open(project, state=state, home=home, environ=os.environb) as session,
        under_load(session, "a", database),
    ):
        for number in range(times):
            try:
                forks.append(checked(session, "a", f"b{number}", database, live=number % 2 == 1))
            except AssertionError as error:
                sys.stderr.write(f"{name}, fork {number}: {error}\n")
    taken, until = ([each.fork for each in forks] or [0.0], [each.start for each in forks] or [0.0])
    figures = f"{statistics.median(taken):.2f} s, {max(taken):.2f} s | {statistics.median(until):.2f} s"
    return f"| {name} | {len(forks)} of {times} | 0 of {sum(each.acknowledged for each in forks):,} | {figures} |\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=25)
    parser.add_argument("--keep", help="a directory for the files")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    rows = []
    for name, database in DATABASES.items():
        if not args.names or name in args.names:
            with tempfile.TemporaryDirectory(dir=args.keep, ignore_cleanup_errors=True) as root:
                rows.append(row(name, database, args.times, Path(root)))
            sys.stdout.write(rows[-1])
            sys.stdout.flush()
    if args.write:
        load = f"\nThe machine had {os.cpu_count()} processors and a load of {os.getloadavg()[2]:.0f}.\n"
        _before, mark, rest = DOCUMENT.read_text().partition(f"\n{LIVE}")
        DOCUMENT.write_text(HEAD + "".join(rows) + load + mark + rest)


if __name__ == "__main__":
    main()
