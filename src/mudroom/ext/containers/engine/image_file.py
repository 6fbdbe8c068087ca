"""Inspect a named image, and prepare those of its files that its containers see changed.

Rules of this file: no program in an image is run to inspect it. A container is created from it but never started, and
its files are copied out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from mudroom.core.confinement.container import name_error
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.containers.core.container import LABEL, Engine, engine_environment, engine_words
from mudroom.ext.containers.core.image import Image, User, group, parse_inspected, passwd
from mudroom.ext.containers.engine.engine import PATIENCE, ask
from mudroom.ext.containers.engine.orphans import OWNER
from mudroom.ext.containers.engine.owner import beside, this_process
from mudroom.typing import IO, NamedTuple

_HOSTS = b"127.0.0.1 localhost mudroom %s\n::1 localhost ip6-localhost ip6-loopback\n"
_NAMESERVER = b"nameserver 127.0.0.1\n"
"""The gate's resolver. Without a gate the address has no listener."""
_MOST_LINKS = 8
_LARGEST = 4 << 20
"""The largest passwd or group file, in bytes."""
_BLOCK = 512
"""A tar archive's block size: tar(5)."""


class ProvidedImage(NamedTuple):
    image: Image
    user: User
    mounts: tuple[tuple[bytes, bytes, bool], ...]
    """As ``Plan.mounts``: files that the image lacks or has with other contents."""


def provide(engine: Engine, name: str, user: User, directory: bytes, environ: Mapping[bytes, bytes]) -> ProvidedImage:
    """Prepare an image for a user's containers. The files are made once for each image and user, and kept in
    ``directory``.

    Raise UsageError if the name is wrong or no image here has it, Unsupported if the image cannot be used here,
    MudroomError.
    """
    image = inspect_image(engine, name, environ)
    facts = repr((image.identity, user, _FILES, os.uname().nodename)).encode("utf-8", "surrogateescape")
    key = hashlib.blake2b(facts, digest_size=12).hexdigest()
    place = directory + b"/" + key.encode()
    if not os.path.isdir(place):
        _store(place, _files(engine, image, user, environ))
    return ProvidedImage(image, user, tuple((place + b"/" + file, b"/etc/" + file, False) for file in _FILES))


_FILES = (b"group", b"hosts", b"ld.so.preload", b"passwd", b"resolv.conf")
"""With the image's own ld.so.preload the loader would load the image's libraries into the launcher: ld.so(8)."""
_NO_LINKS = (b"/etc", b"/etc/ld.so.preload", b"/.mudroom", b"/.mudroom-door")
"""Paths that may not be symlinks in the image: the engine, which mounts there, may resolve them differently from a
program inside."""


def inspect_image(engine: Engine, name: str, environ: Mapping[bytes, bytes]) -> Image:
    """Inspect an image without pulling it. Raise UsageError and Unsupported."""
    wrong = name_error(name)
    if wrong:
        raise UsageError(f"{name!r} {wrong}", "mudroom image ls lists the images that mudroom made here")
    try:
        output = ask((*engine_words(engine), b"image", b"inspect", name.encode()), environ)
    except MudroomError as error:
        hint = f"mudroom pulls no image: {engine.kind} pull {name}, or mudroom image build"
        raise UsageError(f"there is no image {name} here: {error.message}", hint) from error
    try:
        return parse_inspected(name, _parsed(output), os.uname().machine)
    except ValueError as error:
        hint = "choose another: container.image"
        raise Unsupported(f"the image {name}", "an image for this machine", f"it {error}", hint) from error


def _parsed(output: bytes) -> object:
    """Return the value that a JSON text holds, or None for any other text."""
    try:
        return json.loads(output)
    except ValueError:
        return None


def _files(engine: Engine, image: Image, user: User, environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return an image's changed files. Raise Unsupported if only root can enter the image, or if a path that has to be
    mounted upon is a symlink."""
    labels = (b"--label", f"{LABEL}=look".encode(), b"--label", f"{OWNER}={this_process()}".encode())
    create = (b"create", b"--network=none", b"--pull=never", *labels, image.identity.encode(), b"/never")
    container = ask((*engine_words(engine), *create), environ).strip().rpartition(b"\n")[2]
    try:
        mode = _root_mode(engine, container, environ)
        if not mode & 0o001:
            needs, found = "a root directory open to all users", f"its root directory has the mode {mode:04o}"
            raise Unsupported(f"the image {image.name}", needs, found, "chmod 755 in it")
        for path in _NO_LINKS:
            entry = _copy_entry(engine, container, path, environ)
            if entry is not None and entry[0].issym():
                needs, found = "real paths for mudroom's own files", f"{show(path)} is a symbolic link"
                raise Unsupported(f"the image {image.name}", needs, found, "remove it there")
        users = passwd(_read(engine, container, b"/etc/passwd", environ), user)
        groups = group(_read(engine, container, b"/etc/group", environ), user)
        ours = {b"hosts": _HOSTS % os.fsencode(os.uname().nodename), b"ld.so.preload": b"", b"resolv.conf": _NAMESERVER}
        return {b"group": groups, b"passwd": users, **ours}
    finally:
        with suppress(MudroomError):
            ask((*engine_words(engine), b"rm", b"--force", b"--volumes", container), environ)


def _read(engine: Engine, container: bytes, path: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Read a container's file; return empty bytes if it is missing, or too large to be valid."""
    for _link in range(_MOST_LINKS):
        entry = _copy_entry(engine, container, path, environ)
        if entry is None:
            return b""
        member, content = entry
        if not member.issym():
            return content
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.fsencode(member.linkname)))
    return b""


def _copy_entry(
    engine: Engine, container: bytes, path: bytes, environ: Mapping[bytes, bytes]
) -> tuple[tarfile.TarInfo, bytes] | None:
    """Return the entry at a path in a container, with its content if it is a file that is not too large. Return None if
    the path does not exist: the engine has just made the container, so a path that it cannot copy is missing. No more
    data is read: the entry may have any size. Raise MudroomError."""
    with _archive(engine, container + b":" + path, environ) as stream:
        try:
            return _read_entry(stream)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise MudroomError(f"{engine.title} copied {show(path)} as an invalid archive: {error}") from error


@contextmanager
def _archive(engine: Engine, source: bytes, environ: Mapping[bytes, bytes]) -> Iterator[IO[bytes]]:
    """Yield the archive into which the engine copies a container's path, as a stream that ends after ``PATIENCE``."""
    argv = [*engine_words(engine), b"cp", source, b"-"]
    with subprocess.Popen(
        argv,
        env=engine_environment(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as copying:
        assert copying.stdout is not None
        late = threading.Timer(PATIENCE, copying.kill)
        late.start()
        try:
            yield copying.stdout
        finally:
            late.cancel()
            copying.kill()


def _read_entry(stream: IO[bytes]) -> tuple[tarfile.TarInfo, bytes] | None:
    assert isinstance(stream, io.BufferedReader)
    if not stream.peek(1):
        return None
    with tarfile.open(fileobj=stream, mode="r|") as opened:
        member = opened.next()
        if member is None:
            return None
        file = opened.extractfile(member) if member.isreg() and member.size <= _LARGEST else None
        return member, file.read() if file is not None else b""


def _root_mode(engine: Engine, container: bytes, environ: Mapping[bytes, bytes]) -> int:
    """Return the permission bits on the container's root directory. Only an archive's first header is read. Where an
    engine starts the archive with the directory's entries (Podman), return the bits that let every user enter: a wrong
    guess shows when the container is started."""
    with _archive(engine, container + b":/.", environ) as stream:
        header = stream.read(_BLOCK)
    try:
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return 0o755
    return entry.mode if entry.name in (".", "./", "/", "") else 0o755


def _store(place: bytes, files: Mapping[bytes, bytes]) -> None:
    new = beside(place)
    os.makedirs(os.path.dirname(new), mode=0o700, exist_ok=True)  # makedirs gives its mode only to the last directory
    os.mkdir(new, 0o700)
    for name, content in files.items():
        with open(new + b"/" + name, "wb") as stream:
            stream.write(content)
        os.chmod(new + b"/" + name, 0o644)
    try:
        os.rename(new, place)
    except OSError:
        for name in files:
            os.unlink(new + b"/" + name)
        os.rmdir(new)
        if not os.path.isdir(place):  # otherwise another process has just made it
            raise
