"""Build images on this machine, with its own programs and its engine.

Rules of this file: a program's output goes to a log; when the program fails, its last words are the message.
Half-built files and images are removed in every case.
"""

from __future__ import annotations

import os
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.containers.core.container import Engine, engine_environment, engine_words
from mudroom.ext.containers.core.image import bases
from mudroom.ext.containers.core.image_recipe import Recipe, build_words, error_line, import_words
from mudroom.ext.containers.engine.image_file import inspect_image
from mudroom.typing import IO, NamedTuple

# --- Pack this machine's directories into an archive that engines import as an image: tar(5) ---
# Rules of this file: everybody who uses the engine can read an image, so only host files that every user can read are
# packed. No file in it is set-user-ID, and none is a device.


_SYSTEM = (b"usr", b"etc", b"opt", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32")
_LEFT_OUT = (b"usr/lib/modules", b"usr/lib/firmware", b"usr/lib/debug")
"""Host directories that belong to its kernel, not to its toolchain."""
_EMPTY = ((b"proc", 0o755), (b"sys", 0o755), (b"dev", 0o755), (b"run", 0o1777), (b"tmp", 0o1777), (b"var", 0o755))
_MORE = ((b"var/tmp", 0o1777), (b"home", 0o755), (b"root", 0o755))
_OFTEN = 64
"""Entries between two progress reports."""


class PackedTree(NamedTuple):
    files: int
    bytes: int
    left_out: int
    """Entries that not every user can read, or that are no file, directory or link."""


class _Entry(NamedTuple):
    path: bytes
    name: bytes
    """Name in the image."""
    info: os.stat_result


def pack_host(stream: IO[bytes], report: Callable[[int], None], root: bytes = b"/") -> PackedTree:
    """Pack the system directories below ``root``: the files that every user can read, owned by root. ``report`` is
    called with the bytes packed so far. Raise MudroomError if a file shrinks meanwhile."""
    entries = (entry for name in _SYSTEM for entry in _walk(root.rstrip(b"/") + b"/" + name, name))
    files = size = left_out = 0
    try:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            archive.addfile(_directory(b".", 0o755))
            for name, mode in (*_EMPTY, *_MORE):
                archive.addfile(_directory(name, mode))
            for number, entry in enumerate(entries):
                taken = _add(archive, entry)
                files, size, left_out = files + (taken >= 0), size + max(taken, 0), left_out + (taken < 0)
                if number % _OFTEN == 0:
                    report(size)
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        why = (isinstance(error, OSError) and error.strerror) or error
        raise MudroomError(f"the image cannot be packed: {why}", "run the command again") from error
    return PackedTree(files, size, left_out)


def _directory(name: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(os.fsdecode(name))
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def _add(archive: tarfile.TarFile, entry: _Entry) -> int:
    """Add an entry. Return its size in bytes; -1 if it was left out."""
    kind, mode = stat.S_IFMT(entry.info.st_mode), stat.S_IMODE(entry.info.st_mode)
    needed = 0o005 if kind == stat.S_IFDIR else 0o004
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        return -1
    if kind != stat.S_IFLNK and mode & needed != needed:
        return -1
    with ExitStack() as held:
        try:
            content = held.enter_context(_opened(entry.path)) if kind == stat.S_IFREG else None
            info = archive.gettarinfo(os.fsdecode(entry.path), os.fsdecode(entry.name), content)
        except OSError:
            return -1  # gone meanwhile, or not readable after all
        info.mode = mode & 0o1777
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        archive.addfile(info, content if info.isreg() else None)
        return info.size if info.isreg() else 0


def _opened(path: bytes) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _walk(path: bytes, name: bytes) -> Iterator[_Entry]:
    """Yield a directory before its entries; no entry if it does not exist."""
    try:
        info = os.lstat(path)
    except OSError:
        return
    if name in _LEFT_OUT:
        return
    yield _Entry(path, name, info)
    if not stat.S_ISDIR(info.st_mode):
        return
    try:
        inside = sorted(os.listdir(path))
    except OSError:
        return
    for child in inside:
        yield from _walk(path + b"/" + child, name + b"/" + child)


Progress = Callable[[str, int, int], None]
"""Called with the kind of work, the amount done and the total (0: unknown)."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SBIN = b"/usr/local/sbin:/usr/sbin:/sbin"
_LARGEST = 1 << 20
"""The largest Containerfile, in bytes."""


class Workshop(NamedTuple):
    engine: Engine
    variables: Mapping[bytes, bytes]
    place: bytes
    """A mudroom directory for logs and half-built files."""
    progress: Progress

    @property
    def log(self) -> bytes:
        return self.place + b"/build.log"


def build(shop: Workshop, recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    """Build an image, and name it. Return a note about it, or "". Raise UsageError, Unsupported and MudroomError."""
    if shop.engine.kind == "container":
        raise Unsupported(
            "an image made by mudroom",
            "Docker or Podman",
            "Apple container",
            "container build makes one: container build --tag NAME DIRECTORY",
        )
    os.makedirs(shop.place, mode=0o700, exist_ok=True)
    return _BUILDERS[recipe.kind](shop, recipe, name, marks)


def _build_host(shop: Workshop, _recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    argv = (*engine_words(shop.engine), *import_words(name, marks, {"PATH": PATH}))
    with _start(shop, argv, stdin=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        try:
            packed = pack_host(importing.stdin, lambda size: shop.progress("packing, MB", size // 10**6, 0))
            importing.stdin.close()
        except BrokenPipeError:
            packed = PackedTree(0, 0, 0)  # the import has ended, and reports the reason
        except BaseException:
            importing.kill()  # before it takes a partial archive for a complete one
            raise
        _finish(importing, argv)
    return f"{packed.left_out:,} files were left out: not every user here can read them" if packed.left_out else ""


def _build_containerfile(shop: Workshop, recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    text = _read(recipe.file)
    if not recipe.network:
        _require_bases(shop, recipe.file, text)
    with tempfile.TemporaryDirectory(prefix="build-", dir=os.fsdecode(shop.place)) as empty:
        context = recipe.context or os.fsencode(empty)
        if not os.path.isdir(context):
            raise UsageError(f"--context {show(context)} is not a directory")
        file = os.fsencode(empty) + b"/Containerfile"
        if recipe.context:
            file = os.path.abspath(recipe.file)
        else:
            with open(file, "w", encoding="utf-8") as copy:
                copy.write(text)
        complete = recipe._replace(file=file, context=os.path.abspath(context))
        pulls = shop.engine.kind == "podman"
        _run(shop, (*engine_words(shop.engine), *build_words(complete, name, marks, pulls=pulls)))
    return ""


def _read(path: bytes) -> str:
    try:
        with open(path, "rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(
            f"the Containerfile {show(path)}: {error.strerror}", "mudroom image build --file FILE"
        ) from error
    try:
        if len(content) > _LARGEST:
            raise ValueError
        return content.decode()
    except ValueError as error:
        raise UsageError(f"the Containerfile {show(path)} is not UTF-8 text, or longer than 1 MiB") from error


def _require_bases(shop: Workshop, path: bytes, text: str) -> None:
    """Raise UsageError unless the base images are on this machine: without the network, the engine could not pull
    them."""
    base = ""
    try:
        for base in bases(text):
            inspect_image(shop.engine, base, shop.variables)
    except ValueError as error:
        raise UsageError(f"the Containerfile {show(path)} {error}", "--network lets the engine pull it") from error
    except UsageError as error:
        raise UsageError(
            f"the Containerfile {show(path)}: {error.message}",
            f"pull it with {shop.engine.kind} pull {base}, or --network lets the engine do that",
        ) from error


_BUILDERS: dict[str, Callable[[Workshop, Recipe, str, Mapping[str, str]], str]] = {
    "host": _build_host,
    "containerfile": _build_containerfile,
}


def _start(shop: Workshop, argv: Sequence[bytes], stdin: int | IO[bytes] | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv, env=engine_environment(shop.variables), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise MudroomError(f"{show(argv[0])} cannot be started: {error.strerror}") from error


def _run(shop: Workshop, argv: Sequence[bytes]) -> None:
    """Run a program, and report its progress by output lines."""
    variables = {**shop.variables, b"PATH": shop.variables.get(b"PATH", os.fsencode(os.defpath)) + b":" + _SBIN}
    with _start(shop._replace(variables=variables), argv, stdin=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        name = show(os.path.basename(argv[0]))
        with open(shop.log, "wb") as log:
            for number, line in enumerate(running.stdout):
                log.write(line)
                shop.progress(f"{name}, lines", number, 0)
        if running.wait():
            raise _failure(shop, argv)


def _finish(process: subprocess.Popen[bytes], argv: Sequence[bytes]) -> None:
    assert process.stdout is not None
    output = process.stdout.read().decode("utf-8", "replace")
    if process.wait():
        raise MudroomError(f"{show(os.path.basename(argv[0]))}: {show(error_line(output).encode())}")


def _failure(shop: Workshop, argv: Sequence[bytes]) -> MudroomError:
    with open(shop.log, "rb") as log:
        output = log.read().decode("utf-8", "replace")
    name = show(os.path.basename(argv[0]))
    return MudroomError(f"{name}: {show(error_line(output).encode())}", f"full output: {show(shop.log)}")
