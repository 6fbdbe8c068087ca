"""The empty image that mudroom makes for the host's toolchain."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping

from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Engine, engine_words
from mudroom.ext.containers.engine.engine import PATIENCE, Unusable, ask

HOST_IMAGE = "mudroom-host:2"
"""An empty image: its contents are the host's own system directories, mounted read-only."""
_OPEN = ("tmp", "run")
"""A tmpfs gets the mode that the directory below it has, whatever mode is requested (runc, rootfs_linux.go)."""
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def provide_host_image(engine: Engine, environ: Mapping[bytes, bytes]) -> str:
    """Return the empty image's name, and make the image if it does not exist. Raise MudroomError."""
    prefix = engine_words(engine)
    listed = ask((*prefix, b"images", b"--quiet", HOST_IMAGE.encode()), environ)
    if not listed.strip():
        try:
            ask((*prefix, b"import", b"-", HOST_IMAGE.encode()), environ, PATIENCE, stdin=_tree())
        except Unusable:
            raise  # it hangs, and has the hint for that
        except MudroomError as error:
            hint = "mudroom doctor looks for the cause"
            raise MudroomError(f"the image {HOST_IMAGE} cannot be made: {error.message}", hint) from error
    return HOST_IMAGE


def _tree() -> bytes:
    """Return an archive with mount points, and the symlinks in this host's root."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in (".", "usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "home", "root", *_SYSTEM):
            info = tarfile.TarInfo(name)
            info.mode = 0o1777 if name in _OPEN else 0o755
            if os.path.islink("/" + name):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink("/" + name)
            else:
                info.type = tarfile.DIRTYPE
            archive.addfile(info)
    return stream.getvalue()
