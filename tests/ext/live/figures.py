"""From ``mudroom fork new b --from a --live`` to an answer: of the server in b, and of the agent in b.

    PYTHONPATH=tests:tests/cli:tests/session:tests/ext/agents/real python tests/ext/live/figures.py [--times N]

prints the last section of docs/evidence/DATABASES.md, and with ``--write`` writes it. Run it as an ordinary user, after
``dev/agents --fetch claude codex opencode``. No test is here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml
from live_agent import driver, turn
from model_server import ModelServer
from real_agents import BY_NAME, Try

from databases import DATABASES, DOCUMENT, FILES, LIVE, MARIADB, PSQL, REDIS, SERVERS, Database, script, under_load
from mudroom.ext.agents.catalog import Catalog
from mudroom.session import Session

REQUESTS = {
    "PostgreSQL": f"{PSQL} -c 'select count(*) from numbers'",
    "MariaDB": f"{MARIADB} bank -e 'select count(*) from numbers'",
    "Redis": f"{REDIS} get numbers",
}
AGENTS = (("claude", False), ("opencode", False), ("codex", False), ("codex", True))

HEAD = f"""{LIVE}

Made by

    PYTHONPATH=tests:tests/cli:tests/session:tests/ext/agents/real python tests/ext/live/figures.py --write

as an ordinary user. Seconds from the start of `mudroom fork new b --from a --live`, median and most. A server runs in
`a` under the load above; in `b` the policy's start command starts it, and it is ready when its `ready` command
succeeds. The request is a query by `mudroom exec --fork b`.

| server | times | it is ready, and the command has ended | the request is answered |
| --- | --- | --- | --- |
"""
SECOND = """
An agent works in `a`, and waits for its second tool. In `b` it goes on with a new prompt, by the words of its profile
(codex without a terminal by `codex exec resume --last`). Its model is a server on loopback, which answers at once. In
each `b` it knew what was said in `a`; the agent in `a` went on to its end.

| agent | times | the command has ended | it has asked its model | it has answered |
| --- | --- | --- | --- | --- |
"""


def show(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s"


def server_row(name: str, database: Database, times: int, root: Path) -> str:
    """Return the row of a database. ``root``: an empty directory."""
    project, state, home = root / "project", root / "state", root / "home"
    (project / ".mudroom").mkdir(parents=True)
    home.mkdir()
    for file, text in FILES.items():
        (project / file).write_text(text)
    start = {
        "run": list(map(os.fsdecode, script(database.serve))),
        "ready": list(map(os.fsdecode, script(database.ready))),
    }
    (project / ".mudroom/policy.yaml").write_text(yaml.safe_dump({"start": {"commands": [start]}}))
    own = {"HOME": str(home), "MUDROOM_STATE": str(state), "MUDROOM_KEEPER": "0", "MUDROOM_TRUST_POLICY": "1"}
    rows: list[tuple[float, float]] = []

    def mudroom(*words: str) -> None:  # -P: the project has a numbers.py
        done = subprocess.run(
            [sys.executable, "-P", "-m", "mudroom", *words],
            cwd=project,
            env=os.environ | own,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (words, done)

    places = [os.fsencode(place) for place in (project, state, home)]
    with (
        Session.open(places[0], state=places[1], home=places[2], environ=os.environb) as session,
        under_load(session, "a", database),
    ):
        for number in range(times):
            began = time.monotonic()
            mudroom("fork", "new", f"b{number}", "--from", "a", "--live")
            ready = time.monotonic() - began
            query = f"PATH={SERVERS}:$PATH\n{REQUESTS[name]}"
            mudroom("exec", "--quiet", "--fork", f"b{number}", "--", "sh", "-ec", query)
            rows.append((ready, time.monotonic() - began))
            session.sandboxes.end(f"b{number}")
            session.forks.discard(f"b{number}")
    return f"| {name} | {times} | {show([row[0] for row in rows])} | {show([row[1] for row in rows])} |\n"


def agent_row(name: str, times: int, *, terminal: bool) -> str:
    turns = []
    for number in range(times):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root, ModelServer(()) as server:
            here = Try(Path(root), BY_NAME[name])
            try:
                agent = driver(here, server, terminal=terminal)
                with agent.working():
                    turns.append(turn(agent, "b", f"Go on in b, {number}"))
            finally:
                here.close()
    made, asked, answered = zip(*turns, strict=True)
    words = "exec resume --last" if name == "codex" and not terminal else " ".join(Catalog().profile(name).continued)
    shown = f"`{name} {words}`, {BY_NAME[name].version}"
    return f"| {shown} | {times} | {show(made)} | {show(asked)} | {show(answered)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*", help="servers and agents; without --write")
    args = parser.parse_args()
    text = HEAD
    for name in REQUESTS:
        if args.names and name not in args.names:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
            text += server_row(name, DATABASES[name], args.times, Path(root))
            sys.stdout.write(text.splitlines(keepends=True)[-1])
            sys.stdout.flush()
    text += SECOND
    for name, terminal in AGENTS:
        if args.names and name not in args.names:
            continue
        text += agent_row(name, args.times, terminal=terminal)
        sys.stdout.write(text.splitlines(keepends=True)[-1])
        sys.stdout.flush()
    text += f"\nThe machine had {os.cpu_count()} processors and a load of {os.getloadavg()[2]:.0f}.\n"
    if args.write:
        DOCUMENT.write_text(DOCUMENT.read_text().partition(LIVE)[0] + text)


if __name__ == "__main__":
    main()
