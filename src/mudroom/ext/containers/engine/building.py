"""Build images on this machine, with its own programs and its engine.

Rules of this file: a program's output goes to a log; when the program fails, its last words are the message.
Half-built files and images are removed in every case.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.containers.core.container import Engine, engine_words
from mudroom.ext.containers.core.environment import engine_environment
from mudroom.ext.containers.core.image import bases
from mudroom.ext.containers.core.image_recipe import Recipe, build_words, error_line, import_words
from mudroom.ext.containers.engine.image_file import inspect_image
from mudroom.ext.containers.engine.packing import PackedTree, pack_host
from mudroom.typing import IO, NamedTuple

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
