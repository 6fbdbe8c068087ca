"""The runtime: a directory with the launcher and all files that it needs, for use in containers from any image.

The files are found by starting an interpreter that imports the launcher's family and lists the files that it has loaded
and linked. No image file is used, so an image needs neither Python nor a shell.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys

from mudroom.errors import MudroomError
from mudroom.ext.containers.engine.owner import beside

PLACE = b"/.mudroom"
"""Its path in containers."""
_PACKAGE = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
FAMILY = (
    "launcher", "init", "holder", "template", "step", "step_context", "link", "listener", "netlink", "wire", "kernel",
    "mediator", "pause", "program", "refusal",
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
"""dl_iterate_phdr(3): the struct's second word is the name under which an object was requested, and under which it will
be looked up again."""
_LOADER = re.compile(r"ld[-.].*\.so(\.\d+)*$|ld-musl-.*\.so\.\d+$")
"""The program interpreter, ld.so(8), by the names that glibc and musl give it."""


def provide(directory: bytes) -> bytes:
    """Return the runtime's directory for this interpreter and this mudroom; make it below ``directory`` if it is
    missing.

    Raise MudroomError if it cannot be made.
    """
    place = os.fsdecode(directory)
    path = f"{place}/{key()}"
    if not os.path.isdir(path):
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _not_made(error) from error
        _build(path)
    return os.fsencode(path)


def entry(directory: bytes, script: str) -> tuple[bytes, ...]:
    """Return the command line that runs ``script`` with a runtime's interpreter, in a container that has it at
    ``PLACE``."""
    loader = [name for name in os.listdir(directory + b"/lib") if _LOADER.search(os.fsdecode(name))]
    python = PLACE + b"/bin/python3"
    start = (PLACE + b"/lib/" + loader[0], b"--library-path", PLACE + b"/lib", python) if loader else (python,)
    line = f"import sys; sys.path.insert(0, {os.fsdecode(PLACE)!r} + '/src'); {script}"
    return (*start, b"-I", b"-S", b"-c", line.encode())


def key() -> str:
    """Return a key that changes whenever the interpreter or a launcher file does."""
    words = [sys.version, _PRELOAD.decode()]
    for path in (os.path.realpath(sys.executable), *(f"{_PACKAGE}/sandbox/launcher/{name}.py" for name in FAMILY)):
        info = os.stat(path)
        words.append(f"{path} {info.st_size} {info.st_mtime_ns}")
    return hashlib.blake2b("\n".join(words).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _build(path: str) -> None:
    modules, objects = _loaded_files()
    temporary = os.fsdecode(beside(os.fsencode(path)))
    try:
        _copy(os.path.realpath(sys.executable), f"{temporary}/bin/python3")
        library = f"{temporary}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
        root = os.path.dirname(os.__file__)
        for module in modules:
            if module.startswith(_PACKAGE + "/"):
                _copy(module, f"{temporary}/src/mudroom/{module[len(_PACKAGE) + 1 :]}")
            elif module.startswith(root + "/"):
                _copy(module, f"{library}/{module[len(root) + 1 :]}")
        os.makedirs(f"{library}/lib-dynload", exist_ok=True)  # the interpreter locates its library by this directory
        for shared_object in objects:
            if not shared_object.startswith(root + "/") and shared_object != os.path.realpath(sys.executable):
                _copy(shared_object, f"{temporary}/lib/{os.path.basename(shared_object)}")
                if _LOADER.search(shared_object):
                    _disable_preload(f"{temporary}/lib/{os.path.basename(shared_object)}")
        os.rename(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.isdir(path):  # otherwise another process has just made it
            raise _not_made(error) from error


def _not_made(error: OSError) -> MudroomError:
    place = f"{error.filename}: " if error.filename else ""
    hint = "it is made below the state directory; another one: MUDROOM_STATE=/var/tmp/mudroom"
    return MudroomError(f"the runtime for containers cannot be made: {place}{error.strerror}", hint)


_PRELOAD = b"/.mudroom/.preload"
"""The path at which the copied glibc loader looks for /etc/ld.so.preload, which would be the image's; no file is
there."""


def _disable_preload(loader: str) -> None:
    """Patch the loader's name for ld.so.preload. Otherwise the image's file, which lists objects to load into every
    program, would apply whatever the loader's options: ld.so(8). The name is a constant in the program, and the new
    name has the same length."""
    with open(loader, "rb") as stream:
        program = stream.read()
    changed = program.replace(b"/etc/ld.so.preload\0", _PRELOAD + b"\0")
    if changed != program:
        with open(loader, "wb") as stream:
            stream.write(changed)


def _loaded_files() -> tuple[list[str], list[str]]:
    """Return the module files, and the linked shared objects."""
    modules = ", ".join(f"mudroom.sandbox.launcher.{name}" for name in FAMILY)
    script = _PROBE.format(root=os.path.dirname(_PACKAGE), modules=modules)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
        raise MudroomError(
            f"the launcher cannot be loaded by {sys.executable}: {why}", "mudroom doctor tries the sandbox"
        )
    files, _word, objects = done.stdout.partition("objects\n")
    paths = [[line for line in part.splitlines() if line.startswith("/")] for part in (files, objects)]
    return paths[0], paths[1]


def _copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    shutil.copy2(source, target)  # with its time, on which the byte code beside it depends
