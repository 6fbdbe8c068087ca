"""The program of ``kernel.py`` and ``terminal.py``, in the sandbox. It runs code in one namespace (``serve``), or a
shell in a terminal (``terminal``), or sends a text to one of them (``send``).

Its interpreter may lack mudroom: only the standard library is imported.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import io
import json
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import time
import traceback

PATIENCE = 30.0
"""Seconds until the server listens, at most."""


def answer_to(source: str, names: dict[str, object]) -> dict[str, object]:
    """Run code. Return its output, its last expression's value and its exception."""
    out, err = io.StringIO(), io.StringIO()
    value = trouble = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            tree = ast.parse(source, "<code>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<code>", "exec"), names)
            if isinstance(last, ast.Expr):
                result = eval(compile(ast.Expression(last.value), "<code>", "eval"), names)
                value = None if result is None else repr(result)
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is the caller's
            trouble = [type(error).__name__, str(getattr(error, "value", error)), traceback.format_exc()]
    return {"value": value, "error": trouble, "stdout": out.getvalue(), "stderr": err.getvalue()}


def listening(place: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place + ".new")
    listener.listen()
    os.rename(place + ".new", place)
    return listener


def terminal(place: str) -> None:
    """Run a shell. A message is ``input`` and bytes, ``size ROWS COLUMNS`` or ``kill``."""
    pid, master = pty.fork()
    if not pid:
        os.execvp("bash", ["bash", "-i", "-l"])
    listener, typed = listening(place), b""
    heard = listener.fileno()
    while True:
        ready, writable, _ = select.select([master, heard], [master] if typed else [], [])
        if master in ready:
            with contextlib.suppress(OSError):  # EIO: the shell has ended (pty(7))
                if data := os.read(master, 1 << 16):
                    os.write(1, data)
                    continue
            break
        if writable:
            typed = typed[os.write(master, typed[:512]) :]
        if heard in ready:
            connection, _address = listener.accept()
            with connection, connection.makefile("rb") as stream:
                kind, _space, rest = stream.read().partition(b" ")
            if kind == b"input":
                typed += rest
            elif kind == b"size":
                fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", *map(int, rest.split()), 0, 0))
            else:
                os.killpg(pid, signal.SIGKILL)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) % 256)


def serve(place: str) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    listener = listening(place)
    sys.argv = [""]
    sys.path[0] = ""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            answer = json.dumps(answer_to(stream.read().decode("utf-8", "surrogateescape"), names))
            with contextlib.suppress(OSError):
                stream.write(answer.encode())
                stream.flush()


def send(place: str) -> None:
    until = time.monotonic() + PATIENCE
    while not os.path.exists(place) and time.monotonic() < until:
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        connection.sendall(sys.stdin.buffer.read())
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 16):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    work = {"serve": serve, "send": send, "terminal": terminal}[sys.argv[1]]
    work(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
