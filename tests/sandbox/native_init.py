"""The launcher of sandboxes, built as a wheel has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "src/native/launcher").glob("*.c"))
STRICT = (
    "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wstrict-prototypes",
    "-Wmissing-prototypes", "-Wformat=2", "-Wvla", "-Werror",
)  # fmt: skip
COMPILERS = [name for name in ("gcc", "clang", "musl-gcc") if shutil.which(name)]


def compile_launcher(directory: Path, *options: str) -> bytes:
    """Build the launcher in ``directory``. Return its path."""
    program = directory / "mudroom-launcher"
    subprocess.run([COMPILERS[0], *STRICT, *(options or ("-O2",)), *SOURCES, "-o", program], check=True)
    return bytes(program)
