"""Images that are made on this machine, by its own programs and its engine.

Rules of this file: what a program says while it works goes to a log; when it fails its last words are the message. What
is half made is removed, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, NamedTuple

from mudroom.core.confinement.container import Engine
from mudroom.core.confinement.image import bases
from mudroom.core.confinement.image_recipe import Recipe, bootstrap_words, build_words, error_line, import_words
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.sandbox.container.engine import ask
from mudroom.sandbox.container.image_file import look, words
from mudroom.sandbox.container.packing import PackedTree, pack_host, pack_root

Progress = Callable[[str, int, int], None]
"""What is done, how much of it, of how much (0: nobody knows)."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SBIN = b"/usr/local/sbin:/usr/sbin:/sbin"
_LARGEST = 1 << 20
"""Bytes of a Containerfile."""


class Workshop(NamedTuple):
    engine: Engine
    variables: Mapping[bytes, bytes]
    place: bytes
    """A directory of ours, for logs and what is half made."""
    progress: Progress

    @property
    def log(self) -> bytes:
        return self.place + b"/build.log"


def build(shop: Workshop, recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    """Make an image, and give it its name. Returns what there is to say about it besides; raises UsageError,
    Unsupported and MudroomError."""
    if shop.engine.kind == "container":
        raise Unsupported(
            "an image made by mudroom", "Docker or Podman", "Apple container", "container build makes one"
        )
    os.makedirs(shop.place, mode=0o700, exist_ok=True)
    return _MADE[recipe.kind](shop, recipe, name, marks)


def _host(shop: Workshop, _recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    packed = _import(shop, name, marks, lambda stream: pack_host(stream, _said(shop)))
    return f"{packed.left_out:,} files were left out, which not everybody here can read" if packed.left_out else ""


def _import(shop: Workshop, name: str, marks: Mapping[str, str], fill: Callable[[IO[bytes]], PackedTree]) -> PackedTree:
    """An image of what ``fill`` writes."""
    argv = (*words(shop.engine), *import_words(name, marks, {"PATH": PATH}))
    with _start(shop, argv, stdin=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        try:
            packed = fill(importing.stdin)
            importing.stdin.close()
        except BrokenPipeError:
            packed = PackedTree(0, 0, 0)  # it has ended, and says why
        except BaseException:
            importing.kill()  # before it takes what there is for all
            raise
        _finish(importing, argv)
    return packed


def _debootstrap(shop: Workshop, recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
    streaming, filling = _find(b"mmdebstrap", shop.variables), _find(b"debootstrap", shop.variables)
    if streaming is not None:
        _stream(shop, (streaming, *bootstrap_words(recipe, b"", streams=True)), name, marks)
        return ""
    if filling is None or os.geteuid():
        found = "only debootstrap, and this user is not root" if filling is not None else "neither is installed"
        needs = "mmdebstrap, or debootstrap as root"
        raise Unsupported("an image by debootstrap", needs, found, "apt install mmdebstrap; or --from host")
    directory = os.fsencode(tempfile.mkdtemp(prefix="root-", dir=os.fsdecode(shop.place)))
    try:
        os.chmod(directory, 0o755)
        _run(shop, (filling, *bootstrap_words(recipe, directory, streams=False)))
        _import(shop, name, marks, lambda stream: pack_root(stream, directory, _said(shop)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return ""


def _said(shop: Workshop) -> Callable[[int], None]:
    return lambda size: shop.progress("packing, MB", size // 10**6, 0)


def _stream(shop: Workshop, argv: Sequence[bytes], name: str, marks: Mapping[str, str]) -> None:
    """From one program to the other. What the second has taken is removed if the first fails."""
    taking = (*words(shop.engine), *import_words(name, marks, {"PATH": PATH}))
    with ExitStack() as both:
        log = both.enter_context(open(shop.log, "wb"))
        making = both.enter_context(
            subprocess.Popen(
                argv, env=dict(shop.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        )
        importing = both.enter_context(_start(shop, taking, stdin=making.stdout))
        assert making.stdout is not None
        making.stdout.close()
        failure: MudroomError | None = None
        try:
            _finish(importing, taking)
        except MudroomError as error:
            failure = error
        if making.wait():
            if failure is None:
                ask((*words(shop.engine), b"image", b"rm", b"--force", name.encode()), shop.variables)
            raise _failed(shop, argv)
        if failure is not None:
            raise failure


def _containerfile(shop: Workshop, recipe: Recipe, name: str, marks: Mapping[str, str]) -> str:
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
        made = recipe._replace(file=file, context=os.path.abspath(context))
        pulls = shop.engine.kind == "podman"
        _run(shop, (*words(shop.engine), *build_words(made, name, marks, pulls=pulls)))
    return ""


def _read(path: bytes) -> str:
    try:
        with open(path, "rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"the Containerfile {show(path)}: {error.strerror}") from error
    try:
        if len(content) > _LARGEST:
            raise ValueError
        return content.decode()
    except ValueError as error:
        raise UsageError(f"the Containerfile {show(path)} is no text, or too long") from error


def _require_bases(shop: Workshop, path: bytes, text: str) -> None:
    """Without the network what it builds on has to be here: engines would pull it."""
    try:
        for base in bases(text):
            look(shop.engine, base, shop.variables)
    except ValueError as error:
        raise UsageError(f"the Containerfile {show(path)} {error}", "--network lets the engine pull it") from error
    except UsageError as error:
        raise UsageError(
            f"the Containerfile {show(path)}: {error.message}", "pull it, or --network lets the engine do that"
        ) from error


_MADE: dict[str, Callable[[Workshop, Recipe, str, Mapping[str, str]], str]] = {
    "host": _host,
    "debootstrap": _debootstrap,
    "containerfile": _containerfile,
}


def _find(program: bytes, environ: Mapping[bytes, bytes]) -> bytes | None:
    path = environ.get(b"PATH", os.fsencode(os.defpath)) + b":" + _SBIN
    for directory in path.split(b":"):
        found = directory + b"/" + program
        if directory.startswith(b"/") and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def _start(shop: Workshop, argv: Sequence[bytes], stdin: int | IO[bytes] | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv, env=dict(shop.variables), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise MudroomError(f"{show(argv[0])} cannot be started: {error.strerror}") from error


def _run(shop: Workshop, argv: Sequence[bytes]) -> None:
    """A program that works for a while, and says how far it is in lines."""
    variables = {**shop.variables, b"PATH": shop.variables.get(b"PATH", os.fsencode(os.defpath)) + b":" + _SBIN}
    with _start(shop._replace(variables=variables), argv, stdin=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        name = show(os.path.basename(argv[0]))
        with open(shop.log, "wb") as log:
            for number, line in enumerate(running.stdout):
                log.write(line)
                shop.progress(f"{name}, lines", number, 0)
        if running.wait():
            raise _failed(shop, argv)


def _finish(process: subprocess.Popen[bytes], argv: Sequence[bytes]) -> None:
    assert process.stdout is not None
    said = process.stdout.read().decode("utf-8", "replace")
    if process.wait():
        raise MudroomError(f"{show(os.path.basename(argv[0]))}: {show(error_line(said).encode())}")


def _failed(shop: Workshop, argv: Sequence[bytes]) -> MudroomError:
    with open(shop.log, "rb") as log:
        said = log.read().decode("utf-8", "replace")
    name = show(os.path.basename(argv[0]))
    return MudroomError(f"{name}: {show(error_line(said).encode())}", f"all that it said: {show(shop.log)}")
