"""The client of a keeper: the program that a wheel has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.small import program

_SOURCES = sorted(map(str, (Path(__file__).parents[1] / "src/native").glob("*.c")))
_COMPILERS = ("musl-gcc -static", "cc -static", "cc")


def client(directory: bytes) -> str:
    """Return the program: compiled in ``directory``, or the installed one where that fails."""
    native = os.path.join(os.fsdecode(directory), "mudroom")
    for compiler in _COMPILERS:
        try:
            words = [*compiler.split(), "-std=c11", "-O2", "-s", *_SOURCES, "-o", native]
            if subprocess.run(words, capture_output=True, check=False).returncode == 0:
                return native
        except OSError:
            pass  # there is no such compiler
    return program()[0]
