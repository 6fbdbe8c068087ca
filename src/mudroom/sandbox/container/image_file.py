"""A named image of an engine: what it is, and the files of its own that a container of it is shown changed.

Rules of this file: nothing of an image is run to look at it. A container is made of it that is never started, and its
files are copied out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from mudroom.core.confinement.container import LABEL, Engine
from mudroom.core.confinement.image import Image, User, group, name_error, parse_inspected, passwd
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.sandbox.container.engine import PATIENCE, ask
from mudroom.sandbox.container.orphans import OWNER
from mudroom.sandbox.container.owner import beside, this_process

_HOSTS = b"127.0.0.1 localhost mudroom\n::1 localhost ip6-localhost ip6-loopback\n"
_NAMESERVER = b"nameserver 127.0.0.1\n"
"""The gate's, if there is one; if not, nobody's."""
_MOST_LINKS = 8
_LARGEST = 4 << 20
"""Bytes of a file of users."""
_BLOCK = 512
"""Of a tar archive: tar(5)."""


class ProvidedImage(NamedTuple):
    image: Image
    user: User
    mounts: tuple[tuple[bytes, bytes, bool], ...]
    """As ``Plan.mounts``: files that the image has not, or not so."""


def provide(engine: Engine, name: str, user: User, directory: bytes, environ: Mapping[bytes, bytes]) -> ProvidedImage:
    """What a container of an image needs, worked out once for each image and user, and kept in ``directory``.

    Raises UsageError if that is no name or no image here, Unsupported if it cannot be used here, MudroomError.
    """
    image = look(engine, name, environ)
    facts = repr((image.identity, user, _FILES)).encode("utf-8", "surrogateescape")
    key = hashlib.blake2b(facts, digest_size=12).hexdigest()
    place = directory + b"/" + key.encode()
    if not os.path.isdir(place):
        _keep(place, _files(engine, image, user, environ))
    return ProvidedImage(image, user, tuple((place + b"/" + file, b"/etc/" + file, False) for file in _FILES))


_FILES = (b"group", b"hosts", b"ld.so.preload", b"passwd", b"resolv.conf")
"""By the image's own ld.so.preload the loader would load programs of the image into the launcher: ld.so(8)."""
_NO_LINKS = (b"/etc", b"/etc/ld.so.preload", b"/.mudroom", b"/.mudroom-door")
"""A link of the image's may lead elsewhere for the engine that mounts there than for the program that looks there."""


def words(engine: Engine) -> tuple[bytes, ...]:
    """What every command line of an engine begins with."""
    return (engine.program, *(option.encode() for option in engine.options))


def look(engine: Engine, name: str, environ: Mapping[bytes, bytes]) -> Image:
    """What an image is. Nothing is pulled. Raises UsageError and Unsupported."""
    wrong = name_error(name)
    if wrong:
        raise UsageError(f"{name!r} {wrong}", "mudroom image ls lists those of this machine that mudroom made")
    try:
        said = ask((*words(engine), b"image", b"inspect", name.encode()), environ)
    except MudroomError as error:
        hint = f"mudroom pulls no image: {engine.kind} pull {name}, or mudroom image build"
        raise UsageError(f"there is no image {name} here: {error.message}", hint) from error
    try:
        return parse_inspected(name, json.loads(said), os.uname().machine)
    except ValueError as error:
        raise Unsupported(f"the image {name}", "an image for this machine", f"it {error}") from error


def _files(engine: Engine, image: Image, user: User, environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Raises Unsupported if nobody but root gets into the image at all."""
    labels = (b"--label", f"{LABEL}=look".encode(), b"--label", f"{OWNER}={this_process()}".encode())
    create = (b"create", b"--network=none", b"--pull=never", *labels, image.identity.encode(), b"/never")
    container = ask((*words(engine), *create), environ).strip().rpartition(b"\n")[2]
    try:
        mode = _root_mode(engine, container, environ)
        if not mode & 0o001:
            found = f"its root directory has the mode {mode:04o}"
            raise Unsupported(f"the image {image.name}", "a root that others may enter", found, "chmod 755 in it")
        for path in _NO_LINKS:
            first = _first(engine, container, path, environ)
            if first is not None and first[0].issym():
                found = f"{show(path)} is a symbolic link"
                raise Unsupported(f"the image {image.name}", "to be shown files of ours", found, "remove it there")
        users = passwd(_read(engine, container, b"/etc/passwd", environ), user)
        groups = group(_read(engine, container, b"/etc/group", environ), user)
        ours = {b"hosts": _HOSTS, b"ld.so.preload": b"", b"resolv.conf": _NAMESERVER}
        return {b"group": groups, b"passwd": users, **ours}
    finally:
        with suppress(MudroomError):
            ask((*words(engine), b"rm", b"--force", b"--volumes", container), environ)


def _read(engine: Engine, container: bytes, path: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """A file of a container; empty if there is none, or a larger one than can be right."""
    for _link in range(_MOST_LINKS):
        first = _first(engine, container, path, environ)
        if first is None:
            return b""
        member, content = first
        if not member.issym():
            return content
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.fsencode(member.linkname)))
    return b""


def _first(
    engine: Engine, container: bytes, path: bytes, environ: Mapping[bytes, bytes]
) -> tuple[tarfile.TarInfo, bytes] | None:
    """What is at a path of a container, and the content of a file that is not too large; None if nothing is: the engine
    has just made the container, and what it cannot copy is not there. No more is read of it than that: it may be of any
    size. Raises MudroomError."""
    argv = [*words(engine), b"cp", container + b":" + path, b"-"]
    with subprocess.Popen(
        argv, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as copying:
        assert copying.stdout is not None
        late = threading.Timer(PATIENCE, copying.kill)
        late.start()
        try:
            return _first_of(copying.stdout)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise MudroomError(f"{engine.title} copied {show(path)} of the image as no archive: {error}") from error
        finally:
            late.cancel()
            copying.kill()


def _first_of(stream: IO[bytes]) -> tuple[tarfile.TarInfo, bytes] | None:
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
    """The permission bits of its root directory: the first header of an archive of it, the rest is not waited for.
    Where an engine begins with what is in it (Podman), those of a directory that all may enter: the container says else
    when it is started."""
    argv = [*words(engine), b"cp", container + b":/.", b"-"]
    with subprocess.Popen(
        argv, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as copying:
        assert copying.stdout is not None
        header = copying.stdout.read(_BLOCK)
        copying.kill()
    try:
        first = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return 0o755
    return first.mode if first.name in (".", "./", "/", "") else 0o755


def _keep(place: bytes, files: Mapping[bytes, bytes]) -> None:
    new = beside(place)
    os.makedirs(os.path.dirname(new), mode=0o700, exist_ok=True)  # makedirs gives its mode to the last one only
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
        if not os.path.isdir(place):  # else somebody else has just made it
            raise
