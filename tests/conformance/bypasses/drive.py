"""Commands in a session with a gate, for a test that wants to see the process from outside.

    python drive.py SETTINGS
    python drive.py - DESCRIPTOR

``SETTINGS``: a file of JSON; ``-``: its path is a line on stdin, and by the socket ``DESCRIPTOR`` come the namespaces
that the gate is to be in. What came of each command is a line of JSON on stdout, as soon as it is over.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_SOURCE = str(_HERE.parent.parent.parent / "src")
sys.path[:0] = [str(_HERE.parent.parent), _SOURCE]

from conformance.bypasses.phone import RULES  # noqa: E402
from mudroom.core.network.flow import FlowAnswer  # noqa: E402
from mudroom.core.network.host_rules import HostRule  # noqa: E402
from mudroom.core.settings import Settings  # noqa: E402
from mudroom.net.gate_handle import Gate  # noqa: E402
from mudroom.sandbox.linux.seccomp import compile_filter  # noqa: E402
from mudroom.sandbox.linux.syscall import Cond, SyscallRule  # noqa: E402
from mudroom.session import Session  # noqa: E402
from mudroom.session.confinement import command_gate  # noqa: E402
from mudroom.session.confinement.host_approver import HostAnswers  # noqa: E402

_NAMESPACES = 0x7E020000  # CLONE_NEW* as the default profile of containers masks them
_PROFILE = (
    SyscallRule("unshare", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
    SyscallRule("clone", errno.EPERM, (Cond(0, "!=", 0, _NAMESPACES),), "as without CAP_SYS_ADMIN"),
    SyscallRule("clone3", errno.ENOSYS, (), "as in the profile"),
    SyscallRule("mount", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
    SyscallRule("open_tree", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
)


def contain() -> None:
    """From here on as in a container's default profile: no namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = compile_filter(_PROFILE, os.uname().machine)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0):
        raise OSError(ctypes.get_errno(), "no profile")


_ENTER = """import ctypes, os
for one in [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in {paths!r}]:
    if ctypes.CDLL(None, use_errno=True).setns(one, 0) < 0:
        raise OSError(ctypes.get_errno(), "setns")
"""


def gate(log: str, namespaces: list[int]) -> Gate:
    """The gate process, whose only resolver writes down what it is asked."""
    enter = _ENTER.format(paths=[f"/proc/{os.getpid()}/fd/{one}" for one in namespaces])
    paths = [str(_HERE.parent.parent), _SOURCE]
    program = f"import sys; sys.path[:0] = {paths!r}; from conformance.bypasses.phone import main; main({log!r})"
    return Gate(f"{enter}{program}" if namespaces else program)


def session(told: dict[str, Any], name: str) -> Session:
    rules = [HostRule(action, pattern, ports, private=private) for action, pattern, ports, private in RULES]  # type: ignore[arg-type]
    rules += [HostRule(*one) for one in told.get("rules", ())]
    settings = Settings(network="gate", view=told["view"])
    project = os.fsencode(Path(told["root"]) / name)
    return Session.open(
        project,
        state=os.fsencode(Path(told["root"]) / "state"),
        home=os.fsencode(Path(told["root"]) / "home"),
        environ={**os.environb, b"LC_ALL": b"C"},
        settings=settings,
        hosts=HostAnswers(
            rules=lambda: rules, approver=(lambda _question, _running: FlowAnswer(False)) if told["asked"] else None
        ),
    )


_LOCK = threading.Lock()


def run_all(told: dict[str, Any], name: str) -> None:
    """The commands of a project, one after the other, in one fork."""
    with session(told, name) as opened:
        if told["container"]:
            opened.approval.actor = opened.actor._replace(level=2)
            opened.machine.confinement.mode_contained = "plain" if told["container"] == "plain" else "overlay"
        for argv in told["commands"][name]:
            result = opened.run([os.fsencode(word) for word in argv], fork="bypasses")
            denials = [f"{os.fsdecode(one.target)}: {one.reason}" for one in result.denials]
            said = {
                "project": name, "exit": result.exit_code, "stdout": result.stdout.decode(errors="replace"),
                "stderr": result.stderr.decode(errors="replace")[-4000:], "notes": result.notes, "denials": denials,
            }  # fmt: skip
            with _LOCK:
                sys.stdout.write(json.dumps(said) + "\n")
                sys.stdout.flush()


def main() -> None:
    where, namespaces = sys.argv[1], list[int]()
    if where == "-":
        _word, namespaces, _flags, _address = socket.recv_fds(socket.socket(fileno=int(sys.argv[2])), 1, 2)
        where = sys.stdin.readline().rstrip("\n")
    told = json.loads(Path(where).read_text())
    if told["contained"]:
        contain()
    command_gate.SHARED._gates[""] = gate(told["log"], namespaces)
    threads = [threading.Thread(target=run_all, args=(told, name)) for name in told["commands"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
