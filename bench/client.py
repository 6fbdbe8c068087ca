"""The clients of a keeper: the native one, as a wheel has it, and that of Python, which one has without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.small import program

_SOURCES = sorted(map(str, (Path(__file__).parents[1] / "src/native").glob("*.c")))
_SCRIPT = "import sys\nfrom mudroom.cli import main\nsys.exit(main())\n"
_COMPILERS = ("musl-gcc -static", "cc -static", "cc")


def clients(directory: bytes) -> tuple[str, str]:
    """Return the programs of both clients, which use the same keeper; the second twice, if the first cannot be built.
    They are those that are installed, or are made in ``directory``."""
    installed = program()[0]
    if os.path.exists(installed + "-python"):
        return installed, installed + "-python"
    native = os.path.join(os.fsdecode(directory), "mudroom")
    script = Path(native + "-python")
    script.write_text(f"#!{sys.executable}\n{_SCRIPT}")
    script.chmod(0o755)
    for compiler in _COMPILERS:
        try:
            words = [*compiler.split(), "-std=c11", "-O2", "-s", *_SOURCES, "-o", native]
            if subprocess.run(words, capture_output=True, check=False).returncode == 0:
                return native, str(script)
        except OSError:
            pass  # there is no such compiler
    return str(script), str(script)
