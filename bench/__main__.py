"""``python -m bench``: what mudroom costs, beside what people would use instead, measured in the same run.

    python -m bench                     everything, about half an hour, of which the million files take most
    python -m bench --quick             small sizes, to see that it works
    python -m bench --only view         one part of it
    python -m bench --json results.json

The budgets are those of docs/DESIGN.md. A budget that is not met is a finding, not an error: the exit code is 0.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import pwd
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import mudroom
from bench.attempts import attempts
from bench.binds import many_binds
from bench.buffer import buffers
from bench.classify import classifying
from bench.contained import contained
from bench.forking import forks
from bench.gate import gate
from bench.growth import growth
from bench.inspect import inspecting
from bench.journal import journals
from bench.landing import many_added, many_modified
from bench.limited import at_once, limited
from bench.machine import facts
from bench.measure import Finding
from bench.memory import launcher_memory
from bench.merging import merging
from bench.page import page
from bench.place import FULL, QUICK, Scale, missing
from bench.small import cold_command, kept_command, session_command
from bench.stacking import stacks
from bench.table import header, lines, summary, to_json
from bench.view import workloads
from mudroom.stage.layers.layer import remove_tree

Bench = Callable[[bytes, Scale], Iterator[Finding]]

BENCHES: dict[str, tuple[Bench, ...]] = {
    "command": (session_command,),
    "cold": (cold_command, kept_command),
    "classify": (classifying,),
    "limited": (limited, at_once),
    "containers": (contained,),
    "binds": (many_binds,),
    "view": (workloads,),
    "apply": (many_added,),
    "modify": (many_modified,),
    "merge": (merging,),
    "fork": (forks,),
    "stack": (stacks,),
    "attempts": (attempts,),
    "growth": (growth,),
    "buffer": (buffers,),
    "memory": (launcher_memory,),
    "gate": (gate,),
    "inspect": (inspecting,),
    "journal": (journals,),
    "page": (page,),
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What mudroom costs, beside the alternatives.")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not how fast it is")
    parser.add_argument("--only", action="append", choices=BENCHES, help="only this part; may be repeated")
    parser.add_argument("--json", metavar="FILE", type=argparse.FileType("w"), help="write the findings there, too")
    parser.add_argument("--dir", metavar="DIR", help="where to work (default: the directory for temporary files)")
    parser.add_argument("--user", metavar="NAME", help="for root: run as this user, as people do")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clear up: there may be a loop mount
    # As an installer leaves it: the directory of a checkout may be somebody else's, where Python can write no bytecode,
    # and every cold start would be a compilation.
    compileall.compile_dir(os.path.dirname(mudroom.__file__), quiet=1)
    base = os.fsencode(tempfile.mkdtemp(prefix="mudroom-bench-", dir=args.dir))
    try:
        if args.user is None:
            return measure(base, args.only or list(BENCHES), args.quick, args.json)
        return _as_user(args.user, base, lambda: measure(base, args.only or list(BENCHES), args.quick, args.json))
    finally:
        remove_tree(base)


def measure(base: bytes, names: Sequence[str], quick: bool, output: IO[str] | None) -> int:
    machine = facts(base)
    for line in header(machine):
        print(line)
    for program in missing("bwrap", "git", "rsync", "mkfs.btrfs"):
        print(f"{program} is not installed: nothing is compared with it", file=sys.stderr)
    findings = []
    for name in names:
        for bench in BENCHES[name]:
            for finding in bench(base, QUICK if quick else FULL):
                findings.append(finding)
                for line in lines(finding):
                    print(line, flush=True)
    print(f"\n{summary(findings)}")
    if output is not None:
        json.dump(to_json(machine, quick, findings), output, indent=1)
        output.write("\n")
        output.close()
    return 0


def _as_user(name: str, base: bytes, action: Callable[[], int]) -> int:
    """Do it in a child process that belongs to another user."""
    user = pwd.getpwnam(name)
    os.chown(base, user.pw_uid, user.pw_gid)
    child = os.fork()
    if child:
        _pid, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 1
    try:
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        os.environ["HOME"] = user.pw_dir
        code = action()
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
