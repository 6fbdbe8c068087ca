"""Variables for commands in an image, and for a container engine itself. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mudroom.core.confinement.environment import PROXY_NAMES, completed

_OF_A_TERMINAL = frozenset(
    b"TERM COLORTERM TERM_PROGRAM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI TZ".split()
)
_PATH_OF_IMAGES = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default PATH that container engines use for an image without one."""


def select_image_variables(
    image: Mapping[bytes, bytes],
    environ: Mapping[bytes, bytes],
    *,
    home: bytes,
    cwd: bytes,
    user: bytes,
    proxy: bytes = b"",
    extra: Collection[bytes] = (),
) -> dict[bytes, bytes]:
    """Return the variables for a command in an image: the image's, without proxies, and from the host only those about
    the terminal. Paths in other host variables do not exist in the image."""
    chosen = {name: value for name, value in image.items() if name not in PROXY_NAMES}
    chosen |= {name: value for name, value in environ.items() if name in _OF_A_TERMINAL}
    chosen |= {b"USER": user, b"LOGNAME": user}
    chosen.setdefault(b"PATH", _PATH_OF_IMAGES)
    return completed(chosen, environ, home, cwd, proxy, extra)


def engine_environment(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return a container engine's variables: the user's, without relative directories. A relative path would be below
    the current directory, which is the project. The XDG Base Directory Specification calls such a path invalid; Podman
    creates it in the current directory, also for TMPDIR (podman(1))."""
    return {name: value for name, value in environ.items() if not (_is_place(name) and value[:1] != b"/")}


def _is_place(name: bytes) -> bool:
    return name == b"TMPDIR" or (name.startswith(b"XDG_") and name.endswith((b"_HOME", b"_DIR")))
