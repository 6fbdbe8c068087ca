"""``python -m bench``: what mudroom costs, beside what people would use instead, measured in the same run.

    python -m bench                     everything, about half an hour, of which the million files take most
    python -m bench --reach             the table of docs/evidence/SPEED.md, in Markdown, in three minutes
    python -m bench --quick             small sizes, to see that it works
    python -m bench --only view         one part of it
    python -m bench --write             store the results in bench/results, in the file of this kind of machine
    python -m bench --json results.json

The budgets are those of docs/DESIGN.md. A budget that is not met is a finding, not an error, and so is a rival that is
missing: the exit code is 0. It is 1 if a part of mudroom's own failed. At the end the ratios are compared with the
stored results of this kind of machine (``comparison.py``).
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import pwd
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import mudroom
from bench.arriving import arrivals
from bench.attempts import attempts
from bench.binds import many_binds
from bench.buffer import buffers
from bench.classify import classifying
from bench.comparison import compare, kind_of, merged, told
from bench.contained import contained
from bench.forking import forks
from bench.gate import gate
from bench.growth import growth
from bench.inspect import inspecting
from bench.journal import journals
from bench.judged import judged
from bench.landing import many_added, many_modified
from bench.limited import at_once, limited
from bench.machine import facts
from bench.measure import Finding, reason, unmeasured
from bench.memory import answer, launcher_memory, read_as_root
from bench.merging import merging
from bench.neighbour import neighbours
from bench.page import page
from bench.place import FULL, QUICK, Scale
from bench.reach import reach
from bench.shipping import shipping
from bench.small import cold_command, session_command
from bench.stacking import stacks
from bench.table import header, json_text, lines, markdown, summary, to_json
from bench.toolcalls import tool_calls
from bench.view import workloads
from mudroom.stage.layers.layer import remove_tree

Bench = Callable[[bytes, Scale], Iterator[Finding]]

BENCHES: dict[str, tuple[Bench, ...]] = {
    "command": (session_command,),
    "tools": (tool_calls,),
    "cold": (cold_command,),
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
    "arrive": (arrivals,),
    "attempts": (attempts, judged),
    "fleet": (shipping,),
    "growth": (growth,),
    "buffer": (buffers,),
    "memory": (launcher_memory,),
    "gate": (gate,),
    "neighbour": (neighbours,),
    "inspect": (inspecting,),
    "journal": (journals,),
    "page": (page,),
}


RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What mudroom costs, beside the alternatives.")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not how fast it is")
    parser.add_argument("--only", action="append", choices=BENCHES, help="only this part; may be repeated")
    parser.add_argument("--reach", action="store_true", help="the rows of docs/evidence/SPEED.md, as Markdown")
    parser.add_argument("--write", action="store_true", help="store the results for this kind of machine")
    parser.add_argument(
        "--results", metavar="DIR", default=RESULTS, help="where they are stored (default: %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", type=argparse.FileType("w"), help="write the findings there, too")
    parser.add_argument("--dir", metavar="DIR", help="where to work (default: the directory for temporary files)")
    parser.add_argument("--user", metavar="NAME", help="for root: run as this user, as people do")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clear up: there may be a loop mount
    # As an installer leaves it: the directory of a checkout may be somebody else's, where Python can write no bytecode,
    # and every cold start would be a compilation.
    compileall.compile_dir(os.path.dirname(mudroom.__file__), quiet=1)
    base = os.fsencode(tempfile.mkdtemp(prefix="mudroom-bench-", dir=args.dir))
    names = args.only or list(BENCHES)
    parts = {"reach": (reach,)} if args.reach else {name: BENCHES[name] for name in names}
    task = Task(base, parts, args.quick, args.reach, args.json)
    stored = stored_results(args.results, facts(base))
    try:
        document, code = measure(task) if args.user is None else _as_user(args.user, task)
        for line in _compared(stored, document):
            print(line)
        if args.write:
            write_results(args.results, stored, document)
        return code
    finally:
        remove_tree(base)


class Task(NamedTuple):
    base: bytes
    parts: Mapping[str, Sequence[Bench]]
    quick: bool
    markdown: bool
    output: IO[str] | None


Document = Mapping[str, Any]


def measure(task: Task) -> tuple[Document, int]:
    """Measure and print. Return the document of ``table.to_json``, and the exit code."""
    machine, scale = facts(task.base), QUICK if task.quick else FULL
    for line in [f"{name}: {value}  " for name, value in machine.items()] if task.markdown else header(machine):
        print(line)
    findings, failed = [], False
    for name, benches in task.parts.items():
        for bench in benches:
            try:
                for finding in bench(task.base, scale):
                    findings.append(finding)
                    for line in lines(finding) if not task.markdown else ():
                        print(line, flush=True)
            except Exception as error:  # noqa: BLE001 - a row says so, and the other parts are measured
                failed = True
                findings.append(unmeasured(name, name, reason(error)))
                print(f"{name} was not measured: {reason(error)}", file=sys.stderr)
    if task.markdown:
        print("\n" + "\n".join(markdown(findings)))
    print(f"\n{summary(findings)}")
    document = to_json(machine, task.quick, findings)
    if task.output is not None:
        task.output.write(json_text(document))
        task.output.close()
    return document, int(failed)


def _as_user(name: str, task: Task) -> tuple[Document, int]:
    """Do it in a child process that belongs to another user. This one answers it what only root may read, and gets the
    document."""
    user = pwd.getpwnam(name)
    os.chown(task.base, user.pw_uid, user.pw_gid)
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    child = os.fork()
    if child:
        theirs.close()
        os.close(write)
        answering = threading.Thread(target=answer, args=(ours,), daemon=True)
        answering.start()
        with open(read, "rb") as stream:
            said = stream.read()
        _pid, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return (json.loads(said) if said else {"findings": [], "machine": facts(task.base)}), code
    code = 1
    try:
        ours.close()
        os.close(read)
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        os.environ["HOME"] = user.pw_dir
        read_as_root(theirs)
        document, code = measure(task)
        with open(write, "wb") as stream:
            stream.write(json.dumps(document).encode())
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


# --- stored results ---


def stored_results(directory: str, machine: Mapping[str, str]) -> Document | None:
    """Return the stored results of this kind of machine, or None."""
    try:
        with open(_file_of(directory, machine)) as stream:
            document: Document = json.load(stream)
    except FileNotFoundError:
        return None
    return document


def write_results(directory: str, stored: Document | None, document: Document) -> None:
    os.makedirs(directory, exist_ok=True)
    path = _file_of(directory, document["machine"])
    with open(path + ".new", "w") as stream:
        stream.write(json_text(merged(stored, document)))
    os.replace(path + ".new", path)
    print(f"stored in {path}")


def _file_of(directory: str, machine: Mapping[str, str]) -> str:
    return os.path.join(directory, kind_of(machine) + ".json")


def _compared(stored: Document | None, document: Document) -> Iterator[str]:
    if stored is None:
        yield f"nothing is stored for this kind of machine, {kind_of(document['machine'])}: --write does that"
    else:
        yield from told(compare(stored, document), stored)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
