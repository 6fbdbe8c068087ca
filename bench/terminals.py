"""``python -m bench.terminals``: whether one keeper runs the commands of all terminals of a user.

Twelve control groups with twelve sets of variables each. Of each of the 144 the second command is to be run by a keeper
(``MUDROOM_KEEPER=only`` says so), and all keepers together take at most 60 MB. An ordinary user's groups are scopes of
systemd; root makes the groups, and runs the commands as ``--user``. Exit code 1: a command had no keeper.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.small import program
from mudroom.ext.keeper.status import keepers, stop

MOST = 60e6
"""Bytes of all keepers."""
GROUPS = 12
VARIABLES: tuple[dict[str, str], ...] = (
    {},
    {"PYTHONUNBUFFERED": "1"},
    {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
    {"PYTHONPATH": "/usr/lib/locale"},
    {"PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"},
    {"PYTHON_VERSION": "3.11", "PYTHON_PIP_VERSION": "24"},
    {"PYTHONWARNINGS": "ignore", "PYTHONBREAKPOINT": "0"},
    {"VIRTUAL_ENV": "/opt/venv", "LANG": "C"},
    {"LD_LIBRARY_PATH": "/usr/lib/locale"},
    {"MALLOC_ARENA_MAX": "2"},
    {"OPENSSL_CONF": "/etc/ssl/openssl.cnf"},
    {"TERM": "dumb", "LC_ALL": "C.UTF-8"},
)
_TERMINAL = """
import json, subprocess, sys
for line in sys.stdin:
    words, environment, directory = json.loads(line)
    done = subprocess.run(words, env=environment, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True)
    print(json.dumps([done.returncode, (done.stdout + done.stderr).decode(errors="replace")]), flush=True)
"""


class Terminal:
    def __init__(self, before: Sequence[str]) -> None:
        """``before``: the words that run a command in its control group."""
        words = [*before, sys.executable, "-I", "-S", "-c", _TERMINAL]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, words: Sequence[str], environment: Mapping[str, str], directory: str) -> tuple[int, str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([words, environment, directory]), file=self._process.stdin, flush=True)
        code, said = json.loads(self._process.stdout.readline())
        return code, said

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def terminals(user: pwd.struct_passwd) -> Iterator[list[Terminal]]:
    """Yield terminals, each in a control group of its own."""
    opened: list[Terminal] = []
    made: list[str] = []
    try:
        for number in range(GROUPS):
            before = ["systemd-run", "--user", "--scope", "--quiet", "--"]
            if os.geteuid() == 0:
                above = next(place for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") if os.path.isdir(place))
                made.append(f"{above}/mudroom-bench-{os.getpid()}-{number}")
                os.mkdir(made[-1])
                for name in ("", "/cgroup.procs"):
                    os.chown(made[-1] + name, user.pw_uid, user.pw_gid)
                enter = f'echo $$ > {made[-1]}/cgroup.procs && exec "$@"'
                ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
                before = ["sh", "-c", enter, "sh", "setpriv", *ids]
            opened.append(Terminal(before))
        yield opened
    finally:
        for terminal in opened:
            terminal.close()
        for group in made:
            os.rmdir(group)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.terminals", description="One keeper for all terminals.")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all commands (default: %(default)s)")
    parser.add_argument("--user", default="nobody", help="for root: whose commands they are (default: %(default)s)")
    args = parser.parse_args(argv)
    user = pwd.getpwnam(args.user) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with tempfile.TemporaryDirectory(prefix="mudroom-terminals-") as root:
        place = {name: f"{root}/{name}" for name in ("project", "home", "state")}
        for path in (root, *place.values()):
            os.makedirs(path, exist_ok=True)
            os.chown(path, user.pw_uid, user.pw_gid)
        usual = {"PATH": os.defpath, "HOME": place["home"], "LANG": "C.UTF-8", "MUDROOM_STATE": place["state"]}
        directory = os.fsencode(place["state"]) + b"/keeper"
        words = [*program(), "run", "--yes", "--", "true"]
        lost, most, seen = list[str](), 0, set[int]()
        with terminals(user) as opened:
            pairs = [(number, more) for number in range(GROUPS) for more in VARIABLES]
            began = time.monotonic()
            for at, (number, more) in enumerate(pairs):
                for second in (False, True):
                    due = began + args.seconds * (2 * at + second) / (2 * len(pairs))
                    time.sleep(max(0.0, due - time.monotonic()))
                    environment = {**usual, **more, **({"MUDROOM_KEEPER": "only"} if second else {})}
                    code, said = opened[number].run(words, environment, place["project"])
                if code:
                    lost.append(f"{time.monotonic() - began:5.1f} s: group {number}, {more}: {said.strip()}")
                rows = keepers(directory)
                most, seen = max(most, sum(row.memory for row in rows)), seen | {row.pid for row in rows}
            stop(directory)  # it is in the group of the command that has started it
    print(f"{len(pairs) - len(lost)} of {len(pairs)} by a keeper; {len(seen)} keepers, {most / 1e6:.1f} MB at most")
    print("\n".join(lost))
    if not seen:  # also where the program is not the client that knows MUDROOM_KEEPER=only
        print(f"no keeper was seen: is {program()[0]} the installed client? dev/native builds it")
    return 1 if lost or not seen or most > MOST else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
