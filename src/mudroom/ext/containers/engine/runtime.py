"""The runtime: a directory with the launcher's program, for use in containers from any image.

The program is static: no image file is used, so an image needs neither an interpreter nor a shell.
"""

from __future__ import annotations

import hashlib
import os
import shutil

from mudroom.core.system.launcher import LAUNCHER
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.containers.engine.owner import beside

PLACE = b"/.mudroom"
"""Its path in containers."""
PROGRAM = PLACE + b"/mudroom-launcher"
_INTERPRETER = 3
"""PT_INTERP of elf(5): the program is dynamic."""


def provide(directory: bytes) -> bytes:
    """Return the runtime's directory for this mudroom; make it below ``directory`` if it is missing.

    Raise MudroomError if it cannot be made.
    """
    path = directory + b"/" + key().encode()
    if not os.path.isdir(path):
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _not_made(error) from error
        _build(path)
    return path


def key() -> str:
    """Return a key that changes whenever the program does. Raise MudroomError if there is none, or a dynamic one."""
    try:
        with open(LAUNCHER, "rb") as stream:
            program = stream.read()
    except OSError as error:
        raise _not_made(error) from error
    if is_dynamic(program):
        message = f"the launcher is not static, as one for containers is: {show(LAUNCHER)}"
        raise MudroomError(message, "install mudroom again with a compiler for static programs: musl-gcc")
    return hashlib.blake2b(program, digest_size=8).hexdigest()


def is_dynamic(program: bytes) -> bool:
    """Return whether a 64-bit little-endian program names an interpreter (ld.so(8)) in its program headers (elf(5))."""
    at, size, count = (int.from_bytes(program[first:last], "little") for first, last in ((32, 40), (54, 56), (56, 58)))
    kinds = (int.from_bytes(program[at + size * row :][:4], "little") for row in range(count))
    return _INTERPRETER in kinds


def _build(path: bytes) -> None:
    temporary = beside(path)
    try:
        os.makedirs(temporary, mode=0o755, exist_ok=True)
        shutil.copyfile(LAUNCHER, temporary + PROGRAM.removeprefix(PLACE))
        os.chmod(temporary + PROGRAM.removeprefix(PLACE), 0o755)
        os.rename(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.isdir(path):  # otherwise another process has just made it
            raise _not_made(error) from error


def _not_made(error: OSError) -> MudroomError:
    place = f"{show(os.fsencode(error.filename))}: " if error.filename else ""
    hint = "it is made below the state directory; another one: MUDROOM_STATE=/var/tmp/mudroom"
    return MudroomError(f"the runtime for containers cannot be made: {place}{error.strerror}", hint)
