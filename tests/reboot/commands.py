"""Runs command lines, and looks, each in a process that is forked from this one, which has imported everything. A line
of JSON is read for each, and one with exit status, output and errors is written. No test is here.

    mudroom WORD…                                   the command line, in the project
    look PROJECT STATE HOME [another]               ``observe.py``
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from observe import observe, start_machine_now
from story import import_all


def perform(words: list[str]) -> int:
    if words[0] == "look":
        if words[4:]:
            start_machine_now()
        json.dump(observe(*map(Path, words[1:4])), sys.stdout)
        return 0
    from mudroom.cli.main import run

    os.chdir(os.environ["PROJECT"])
    return run(words[1:], os.environb)


def child(words: list[str], out: int, err: int) -> int:
    null = os.open(os.devnull, os.O_RDONLY)
    for target, descriptor in enumerate((null, out, err)):
        os.dup2(descriptor, target)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m) for n, m in ((0, "r"), (1, "w"), (2, "w")))
    try:
        return perform(words)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main() -> None:
    import_all()
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            pid = os.fork()
            if pid == 0:
                os._exit(child(json.loads(line), out.fileno(), err.fileno()))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            out.seek(0)
            err.seek(0)
            sys.stdout.write(json.dumps([code, out.read(), err.read()]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
