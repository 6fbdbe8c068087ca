"""The build of the native programs (hatchling's custom hook): the keeper's client, and the launcher of sandboxes.

Rules of this file:
1. On Linux there are always both: no sandbox works without a launcher. A machine without a C compiler gets one from
   the index for the build alone (``ziglang``: clang with musl, in the build's temporary environment). If that does not
   compile either, the build fails and says why. In a wheel the launcher lies beside ``sandbox/client/wire.py``; an
   editable installation gets it there in the tree.
2. The client is the program ``mudroom``, one of the wheel's scripts, and ``mudroom-python`` is the console script. An
   installer puts both into one directory (binary distribution format, packaging.python.org).
3. The tag says what the program is: of the machine in its ELF header (elf(5)). A static one needs no libc, so it is for
   each Linux, and its wheel says so (PEP 600, PEP 656).

``MUDROOM_WHEEL=elsewhere`` makes the wheel for systems without a launcher, which Linux does not take. ``CC`` is the
compiler, with options.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "src/native"
"""The directory; all its files of C are one program."""
SHARE = "share"
"""Completions and the manual page, which ``dev/release`` puts into the sdist: they are printed by mudroom itself."""
LAUNCHER, LAUNCHER_PLACE = "src/native/launcher", "mudroom/sandbox/client/mudroom-launcher-2"
"""The same of the launcher, and its path in the wheel: ``LAUNCHER`` of ``core/system/launcher.py``."""
ELSEWHERE = "py3-none-macosx_10_12_x86_64.macosx_11_0_arm64.win_amd64.win_arm64"
COMPILERS = ("musl-gcc", "cc", "gcc", "clang")
ZIG = "ziglang"
ZIG_MACHINES = ("x86_64", "aarch64")
"""Machines for which the index has it, and releases are made."""
OPTIONS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-fstack-protector-strong", "-Wl,-z,relro,-z,now", "-s")
LINKS = (("-static",), ())
"""Ways to link, by preference: a dynamic program takes longer to start, and needs its libc."""
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}
"""Of ``e_machine`` in elf(5), those whose wheels an index takes."""
_INTERPRETER = 3
"""PT_INTERP of elf(5): the program is dynamic."""


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc]  # its package has no types here
    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatchling."""
        is_linux = sys.platform == "linux" and os.uname().machine in ZIG_MACHINES
        has_compiler = "CC" in os.environ or any(shutil.which(name) for name in COMPILERS)
        return [ZIG] if is_linux and not has_compiler else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the programs, and put them into the wheel. ``version``: "editable" or "standard"."""
        share = os.path.join(self.root, SHARE)
        if os.path.isdir(share):
            build_data["shared_data"] = {share: SHARE}
        if os.environ.get("MUDROOM_WHEEL") == "elsewhere":
            build_data["tag"] = ELSEWHERE
            return
        if sys.platform != "linux":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="mudroom-native-")
        launcher, program = (os.path.join(self._scratch.name, name) for name in ("mudroom-launcher", "mudroom"))
        for source, made in ((LAUNCHER, launcher), (SOURCE, program)):
            why = compile_program(os.path.join(self.root, source), made)
            if why:
                self._scratch.cleanup()
                raise SystemExit(f"mudroom on Linux needs programs in C, which cannot be built: {why}")
        if version == "editable":
            place = os.path.join(self.root, "src", LAUNCHER_PLACE)
            shutil.copy2(launcher, place + ".new")
            os.replace(place + ".new", place)
        else:
            build_data["force_include"][launcher] = LAUNCHER_PLACE
        build_data["tag"] = min(map(_tag_of_file, (launcher, program)), key=lambda tag: "manylinux" in tag)
        build_data["pure_python"] = False
        build_data["shared_scripts"] = {program: "mudroom"}
        scripts = self.metadata.core.scripts
        scripts["mudroom-python"] = scripts.pop("mudroom")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Leave the metadata as they were: the same process may build the wheel for other systems next."""
        if self._scratch is not None:
            self._scratch.cleanup()
        if build_data["shared_scripts"]:
            scripts = self.metadata.core.scripts
            scripts["mudroom"] = scripts.pop("mudroom-python")


def compile_program(directory: str, program: str) -> str:
    """Compile the program in ``directory`` into ``program``. Return why that is not possible; empty: it was."""
    sources = sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".c"))
    why = "no C compiler"
    given = shlex.split(os.environ.get("CC", ""))
    for compiler in [given] if given else [*([name] for name in COMPILERS), *_zig()]:
        for link in LINKS:
            try:
                words = [*compiler, *OPTIONS, *link, *sources, "-o", program]
                done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
            except OSError:
                break  # there is no such compiler
            if done.returncode == 0 and _is_elf(program):
                return ""
            why = f"{' '.join(compiler)}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
    return why


def _zig() -> list[list[str]]:
    """Return the command of the index's compiler if it is installed."""
    if importlib.util.find_spec(ZIG) is None:
        return []
    return [[sys.executable, "-m", ZIG, "cc", "-target", f"{os.uname().machine}-linux-musl"]]


def _is_elf(program: str) -> bool:
    try:
        with open(program, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except FileNotFoundError:
        return False


def _tag_of_file(path: str) -> str:
    with open(path, "rb") as stream:
        return tag_of(stream.read())


def tag_of(program: bytes) -> str:
    """Return the wheel's tag for a program."""
    order = "little" if program[5] == 1 else "big"
    machine = _MACHINES.get(int.from_bytes(program[18:20], order))  # type: ignore[arg-type]
    if machine is None or program[4] != 2 or order != "little":
        from packaging.tags import platform_tags

        return f"py3-none-{list(platform_tags())[-1]}"
    if is_dynamic(program):
        return f"py3-none-linux_{machine}"
    return f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"


def is_dynamic(program: bytes) -> bool:
    """Return whether a 64-bit little-endian program names an interpreter (ld.so(8)) in its program headers."""
    at, size, count = (int.from_bytes(program[first:last], "little") for first, last in ((32, 40), (54, 56), (56, 58)))
    kinds = (int.from_bytes(program[at + size * row :][:4], "little") for row in range(count))
    return _INTERPRETER in kinds
