"""Try Seatbelt: run a command that attempts forbidden acts, and check the effects. For ``mudroom doctor``.

The command's own word is not trusted: whether a file exists, or a connection has arrived, is checked from outside. A
probe that could not act at all proves no protection: each first shows that it runs, and reports a refusal by a status
with no other meaning. Otherwise the result is "not probed".
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence

from mudroom.core.confinement.protection import Finding
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.core.system.closing import Descriptor
from mudroom.errors import MudroomError
from mudroom.ext.macos.host import survey_mac, true_path
from mudroom.ext.macos.seatbelt import compile_seatbelt
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.invocation import Invocation

Run = Callable[[str], int]
"""Run a shell script under Seatbelt and return its wait status. Raises MudroomError if there is no sandbox."""
_PERMIT = "see the first of these"
_REFUSED, _DONE = 3, 5
"""A probe's statuses: the kernel refused the act (EPERM, EACCES), or the act succeeded."""
_CONNECT = """
import socket, sys
try:
    s = socket.socket({family})
    s.settimeout(2)
    s.connect({address!r})
    s.send(b"x")
except PermissionError:
    sys.exit({refused})
"""
_OUTSIDE = "run mudroom outside of any other sandbox: one cannot be put into another (an agent's own, an App's)"


def try_seatbelt(client: Client, directory: bytes, *, home: bytes, search: Sequence[bytes]) -> list[Finding]:
    """Try every protection in ``directory``, which is empty. ``home`` and ``search`` are as for ``host.survey``."""
    place = true_path(directory)
    run = runner(client, place, home, search)
    try:
        status = run("exit 7")
    except MudroomError as error:
        return [Finding("a sandbox", "missing", error.message, _OUTSIDE), *_ALWAYS]
    if status >> 8 != 7:
        return [Finding("a sandbox", "missing", f"a shell ended with the status {status}", _OUTSIDE), *_ALWAYS]
    results = [Finding("a sandbox", "strict", "Seatbelt by sandbox-exec, deny by default")]
    return [
        *results,
        _try_writing(run, place),
        _try_reading(run, place),
        *_try_connecting(run, place),
        _try_signalling(run),
        *_ALWAYS,
    ]


def runner(client: Client, place: bytes, home: bytes, search: Sequence[bytes]) -> Run:
    """Return a function that runs scripts in a copy below ``place``, with the network closed."""
    host = survey_mac(home, search)
    work, private = place + b"/work", place + b"/fork/private"
    for directory in (work, private):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    spec = SandboxSpec(
        project=place + b"/project",
        view=Copy(work),
        cwd=work,
        home=private,
        scratch=private,
        namespaces=False,
        binds=(*host.system, *host.home),
        masks=host.masks,
    )
    plan = compile_seatbelt(spec)

    def run(script: str) -> int:
        with Descriptor(os.open(os.devnull, os.O_RDWR)) as null:
            environment = {b"PATH": b"/usr/bin:/bin:/usr/sbin:/sbin", b"HOME": private}
            shell = [b"/bin/sh", b"-c", os.fsencode(script)]
            running = client.run(plan, Invocation(shell, environment, (null, null, null)))
            return running.wait().status

    return run


def _quoted(path: bytes) -> str:
    return "'" + os.fsdecode(path).replace("'", "'\\''") + "'"


def _try_writing(run: Run, place: bytes) -> Finding:
    name, outside, inside = "nothing is written outside of the copy", place + b"/outside", place + b"/work/inside"
    run(f"echo x > {_quoted(inside)}; echo x > {_quoted(outside)}")
    if os.path.lexists(outside):
        return Finding(name, "missing", "it was written", _PERMIT)
    if not os.path.exists(inside):
        return Finding(name, "not probed", "nothing could be written in the copy either")
    return Finding(name, "strict", "refused by the kernel; the copy can be written")


def _try_reading(run: Run, place: bytes) -> Finding:
    """Try to read a host file into the copy, and check the copy from outside."""
    name, secret, copy = "nothing is read but what is shown", place + b"/secret", place + b"/work/copy"
    for path in (secret, place + b"/work/own"):
        with open(path, "wb") as stream:
            stream.write(path)
        run(f"cat {_quoted(path)} > {_quoted(copy)}")
        try:
            with open(copy, "rb") as stream:
                content = stream.read()
            os.unlink(copy)
        except FileNotFoundError:
            return Finding(name, "not probed", "nothing could be written in the copy")
        if path == secret and content:
            return Finding(name, "missing", "a file of the host was read", _PERMIT)
    if content != path:
        return Finding(name, "not probed", "nothing could be read in the copy either")
    return Finding(name, "strict", "files of the host cannot be read, nor looked at")


def _try_connecting(run: Run, place: bytes) -> list[Finding]:
    path = place + b"/s"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        if os.path.lexists(path):
            os.unlink(path)
        try:
            unix.bind(os.fsdecode(path))
        except OSError:  # a path longer than 104 bytes: unix(4)
            return [_try_connection("no network", run, tcp, "socket.AF_INET", tcp.getsockname())]
        return [
            _try_connection("no network", run, tcp, "socket.AF_INET", tcp.getsockname()),
            _try_connection("no servers of the host", run, unix, "socket.AF_UNIX", os.fsdecode(path)),
        ]


def _try_connection(name: str, run: Run, listener: socket.socket, family: str, address: object) -> Finding:
    """Try to connect to ``listener``, and check whether a connection has arrived."""
    listener.listen()
    listener.settimeout(0)
    python = f"exec {_quoted(os.fsencode(sys.executable))} -ISc "
    program = _CONNECT.format(family=family, address=address, refused=_REFUSED)
    if run(python + "pass") != 0:
        return Finding(name, "not probed", "Python, which is to try it, does not run inside")
    status = run(python + _quoted(os.fsencode(program)))
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        if status != _REFUSED << 8:
            return Finding(name, "not probed", "the probe did not run as it should have")
        return Finding(name, "strict", "connect(2) is refused; with the gate, its port is the only one")
    return Finding(name, "missing", "a server of the host was reached", _PERMIT)


def _try_signalling(run: Run) -> Finding:
    name = "other processes cannot be signalled"
    status = run(f"kill -0 $$ || exit 1; kill -0 {os.getpid()} && exit {_DONE}; exit {_REFUSED}")
    if status == _DONE << 8:
        return Finding(name, "missing", "a process of the host was signalled", _PERMIT)
    if status != _REFUSED << 8:
        return Finding(name, "not probed", "its own shell could not be signalled either")
    return Finding(name, "strict", "signals go to processes of the same sandbox only")


_CONTAINER = "level 2, in a container"
_ALWAYS = (
    Finding(
        "processes end with the command",
        "degraded",
        "found by descent, session and a mark, which Apple's own programs do not show; a daemon of those outlives it, "
        "in the sandbox",
        _CONTAINER,
    ),
    Finding("a loopback of its own", "missing", "127.0.0.1 is the host's: nothing there can be reached but the gate"),
    *(
        Finding(f"limit: {kind}", "missing", "macOS has no control groups", _CONTAINER)
        for kind in ("memory", "processes", "cpus", "io")
    ),
    *(Finding(f"limit: {kind}", "strict", "rlimit") for kind in ("open files", "file size")),
)
"""Results without a trial: they are the same on every Mac."""
