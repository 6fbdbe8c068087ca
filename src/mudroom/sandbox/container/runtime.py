"""The launcher with all that it needs to run, as one directory: it is shown to containers, whatever their image holds.

What that is, is found by doing: an interpreter is started that imports the launcher's family, and says which files it
has loaded and linked. Nothing of the image is used, so an image needs neither Python nor a shell.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys

from mudroom.errors import MudroomError
from mudroom.sandbox.container.owner import beside

PLACE = b"/.mudroom"
"""Where containers see it."""
_PACKAGE = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
FAMILY = (
    "launcher", "init", "holder", "template", "step", "step_context", "link", "listener", "netlink", "wire", "kernel",
    "mediator", "pause", "refusal",
)  # fmt: skip
_PROBE = """\
import sys
sys.path.insert(0, {root!r})
import {modules}
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
print("objects")
import ctypes
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_char_p * 2), ctypes.c_size_t, ctypes.c_void_p)
def each(info, size, data):
    print((info.contents[1] or b"").decode())
    return 0
ctypes.CDLL(None).dl_iterate_phdr(each, None)
"""
"""dl_iterate_phdr(3): the second word of its struct is the name under which an object was asked for, by which it will
be looked for again."""
_LOADER = re.compile(r"ld[-.].*\.so(\.\d+)*$|ld-musl-.*\.so\.\d+$")
"""The program interpreter of ld.so(8), by the names that glibc and musl give it."""


def provide(directory: bytes) -> bytes:
    """The directory of the runtime for this interpreter and this mudroom, made below ``directory`` if it is not there.

    Raises MudroomError if it cannot be made.
    """
    place = os.fsdecode(directory)
    path = f"{place}/{key()}"
    if not os.path.isdir(path):
        os.makedirs(place, mode=0o700, exist_ok=True)
        _make(path)
    return os.fsencode(path)


def entry(directory: bytes, script: str) -> tuple[bytes, ...]:
    """The words that run ``script`` by the interpreter of a runtime, in a container that sees it at ``PLACE``."""
    loader = [name for name in os.listdir(directory + b"/lib") if _LOADER.search(os.fsdecode(name))]
    python = PLACE + b"/bin/python3"
    start = (PLACE + b"/lib/" + loader[0], b"--library-path", PLACE + b"/lib", python) if loader else (python,)
    line = f"import sys; sys.path.insert(0, {os.fsdecode(PLACE)!r} + '/src'); {script}"
    return (*start, b"-I", b"-S", b"-c", line.encode())


def key() -> str:
    """Changes whenever the interpreter or one of the launcher's files does."""
    words = [sys.version, _PRELOAD.decode()]
    for path in (os.path.realpath(sys.executable), *(f"{_PACKAGE}/sandbox/launcher/{name}.py" for name in FAMILY)):
        found = os.stat(path)
        words.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return hashlib.blake2b("\n".join(words).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _make(path: str) -> None:
    modules, objects = _loaded()
    made = os.fsdecode(beside(os.fsencode(path)))
    try:
        _copy(os.path.realpath(sys.executable), f"{made}/bin/python3")
        library = f"{made}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
        root = os.path.dirname(os.__file__)
        for module in modules:
            if module.startswith(_PACKAGE + "/"):
                _copy(module, f"{made}/src/mudroom/{module[len(_PACKAGE) + 1 :]}")
            elif module.startswith(root + "/"):
                _copy(module, f"{library}/{module[len(root) + 1 :]}")
        os.makedirs(f"{library}/lib-dynload", exist_ok=True)  # by it the interpreter knows where its library is
        for one in objects:
            if not one.startswith(root + "/") and one != os.path.realpath(sys.executable):
                _copy(one, f"{made}/lib/{os.path.basename(one)}")
                if _LOADER.search(one):
                    _keep_to_ours(f"{made}/lib/{os.path.basename(one)}")
        os.rename(made, path)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        if not os.path.isdir(path):  # else somebody else has just made it
            raise MudroomError(f"the runtime for containers cannot be made: {error}", "see MUDROOM_STATE") from error


_PRELOAD = b"/.mudroom/.preload"
"""Where our copy of glibc's loader looks for /etc/ld.so.preload, which would be the image's; there is nothing."""


def _keep_to_ours(loader: str) -> None:
    """An image's file that names what is to be loaded into every program counts whatever the loader is told: ld.so(8).
    The name is a constant of the program, and ours is as long."""
    with open(loader, "rb") as stream:
        program = stream.read()
    changed = program.replace(b"/etc/ld.so.preload\0", _PRELOAD + b"\0")
    if changed != program:
        with open(loader, "wb") as stream:
            stream.write(changed)


def _loaded() -> tuple[list[str], list[str]]:
    """The files of modules, and the shared objects that are linked."""
    modules = ", ".join(f"mudroom.sandbox.launcher.{name}" for name in FAMILY)
    script = _PROBE.format(root=os.path.dirname(_PACKAGE), modules=modules)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MudroomError(f"the launcher cannot be loaded: {done.stderr.strip().rpartition(chr(10))[2]}")
    files, _word, objects = done.stdout.partition("objects\n")
    found = [[line for line in part.splitlines() if line.startswith("/")] for part in (files, objects)]
    return found[0], found[1]


def _copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    shutil.copy2(source, target)  # with its time: byte code beside it is believed by that
