"""The launcher of sandboxes, built as a wheel has it, or as a library; and one without its client."""

from __future__ import annotations

import ctypes
import marshal
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.report import parse_report

PLACE = Path(__file__).parents[2] / "src/native/launcher"
SOURCES = sorted(PLACE.glob("*.c"))
STRICT = (
    "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wstrict-prototypes",
    "-Wmissing-prototypes", "-Wformat=2", "-Wvla", "-Werror",
)  # fmt: skip
COMPILERS = [name for name in ("gcc", "clang", "musl-gcc") if shutil.which(name)]
PROTOCOL = re.findall(r'^#define PROTOCOL "(.+)" /\*', (PLACE / "launcher.h").read_text(), re.MULTILINE)[0]


def compile_launcher(directory: Path, *options: str) -> bytes:
    """Build the launcher in ``directory``. Return its path."""
    program = directory / "mudroom-launcher"
    subprocess.run([COMPILERS[0], *STRICT, *(options or ("-O2",)), *SOURCES, "-o", program], check=True)
    return bytes(program)


def compile_library(directory: Path, *options: str) -> ctypes.CDLL:
    """Load the launcher's functions into this process."""
    library = directory / "launcher.so"
    words = ["-O2", "-fPIC", "-shared", "-Dmain=launcher_main", *options]
    subprocess.run([COMPILERS[0], "-std=c11", *words, *SOURCES, "-o", library], check=True)
    return ctypes.CDLL(str(library), use_errno=True)


class RawLauncher:
    """A launcher to which a test says what it likes."""

    def __init__(self, program: bytes = b"", environment: dict[str, str] | None = None) -> None:
        self.socket, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        sealed = launcher_client.sealed_program()
        path = program or f"/proc/self/fd/{sealed}".encode()
        self.pid = os.posix_spawn(path, [PROTOCOL, str(theirs.fileno())], environment or {})
        os.close(sealed)
        theirs.close()

    def say(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send bytes. A launcher that has ended does not hear them."""
        try:
            socket.send_fds(self.socket, [data], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> tuple[Any, ...]:
        """Send a request with a new report pipe. Return the first report; empty if there is none."""
        return asked(self.socket, request, descriptors)

    def end(self) -> int:
        """Close the socket. Return the exit code, negative for a signal."""
        self.socket.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def message(request: Any) -> bytes:
    data = marshal.dumps(request, 2)
    return len(data).to_bytes(4, "little") + data


def asked(channel: socket.socket, request: Any, descriptors: Sequence[int] = ()) -> tuple[Any, ...]:
    """Send a request with a new report pipe, as ``RawLauncher.ask`` does, over any channel."""
    read, write = os.pipe()
    try:
        socket.send_fds(channel, [message(request)], [*descriptors, write])
        os.close(write)
        write = -1
        data = os.read(read, 65536)
        return parse_report(data) if data else ()
    except (BrokenPipeError, ConnectionResetError):
        return ()
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
