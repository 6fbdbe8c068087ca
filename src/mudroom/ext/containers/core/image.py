"""Container images: metadata as reported by an engine, own names, and the user's entries in passwd and group. Pure.

Rules of this file: an image is not trusted. Its metadata is checked, and an image that cannot be used is refused with
one line before anything is started.

Sources: ``docker image inspect`` and ``podman image inspect``, passwd(5), group(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mudroom.core.command.locations import normal
from mudroom.core.confinement.container import COMPONENT, HOST, name_error
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below, show
from mudroom.typing import Any, NamedTuple

LABEL = "mudroom.image"
"""Label on images that mudroom built; the value is their source."""
_CONTINUED = regex(r"\\[ \t]*\r?\n")
_OWN = regex(rf"{COMPONENT}(?:/{COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?")
_SEPARATORS = dict.fromkeys(map(ord, ":\n\0"), "_")
"""Characters that a field in passwd(5) and group(5) cannot contain."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machine names from uname(2) to GOARCH, which images use."""


class Image(NamedTuple):
    """An image that exists and can be used."""

    name: str
    """The name that the user gave."""
    identity: str
    """The image's digest: ``sha256:…``."""
    environment: tuple[tuple[bytes, bytes], ...] = ()
    volumes: tuple[bytes, ...] = ()
    """Paths at which an engine would mount a volume by default."""


class User(NamedTuple):
    """The user that runs the commands in a container."""

    name: str
    uid: int
    gid: int
    home: bytes


def own_name_error(name: str) -> str:
    """Return why an image built here cannot have this name, or an empty string if it can. Registry and digest are not
    allowed."""
    if name == HOST:
        return "means the host's own toolchain"
    own = _OWN.fullmatch(name) and not name.startswith("sha256:")
    return name_error(name) or ("" if own else "is not a name for an image of this machine")


def parse_inspected(name: str, description: Any, machine: str) -> Image:
    """Parse an engine's description of an image. ``machine``: this machine, as in uname(2). Raise ValueError, with a
    clause about the image, if it cannot be used here."""
    info = description[0] if isinstance(description, list) and len(description) == 1 else None
    if not isinstance(info, dict) or not isinstance(info.get("Id"), str):
        raise ValueError("is described by the engine in a way that is not understood")
    system, image_architecture, architecture = info.get("Os"), info.get("Architecture"), _MACHINES.get(machine, machine)
    if system != "linux":
        raise ValueError(f"is made for {system}, not for Linux")
    if image_architecture != architecture:
        raise ValueError(f"is made for {image_architecture}, this machine is {architecture}")
    settings = info.get("Config") or {}
    pairs = [variable.partition("=") for variable in settings.get("Env") or ()]
    environment = tuple((key.encode(), value.encode()) for key, equals, value in pairs if key and equals)
    unusable = next((key for key, _value in environment if key in _TRACING), None)
    if unusable is not None:
        raise ValueError(f"sets {unusable.decode()}, with which no program of it runs")
    identity = info["Id"] if info["Id"].startswith("sha256:") else "sha256:" + info["Id"]
    volumes = {normal(volume.encode()) for volume in settings.get("Volumes") or ()}  # as engines resolve them
    return Image(name, identity, environment, tuple(sorted(volumes)))


_TRACING = (b"LD_TRACE_LOADED_OBJECTS",)
"""Even if empty, the variable makes the loader list libraries instead of running the program: ld.so(8)."""


OWN_PLACES = (b"/dev", b"/proc", b"/sys", b"/.mudroom", b"/.mudroom-door")
"""Paths in a mudroom container that a volume must not cover."""


def volumes_in_memory(image: Image, kept: Iterable[bytes], mounted: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the image's volumes that become empty tmpfs directories: all except those replaced by a mount. A volume
    must not be at, inside or above a path in ``kept``, nor inside one in ``mounted``. Raise ValueError, with a clause
    about the image, for a volume that is not possible."""
    kept, mounted = (*OWN_PLACES, *kept), tuple(mounted)
    for volume in image.volumes:
        if b":" in volume:
            raise ValueError(f"has a volume at {show(volume)}: engines cannot be told that name")
        covers = [place for place in kept if is_below(volume, place) or is_below(place, volume) or volume == b"/"]
        covers += [place for place in mounted if volume != place and is_below(volume, place)]
        if covers:
            raise ValueError(f"has a volume at {show(volume)}, and {show(covers[0])} is not its own")
    return tuple(volume for volume in image.volumes if volume not in mounted)


def passwd(content: bytes, user: User) -> bytes:
    """Return the image's /etc/passwd with the user's line first, so that lookups by uid and name find the user. The
    shell is root's in the image."""
    rows = [line.split(b":") for line in content.splitlines()]
    shell = next((row[6] for row in rows if len(row) == 7 and row[2] == b"0" and row[6]), b"/bin/sh")
    line = b":".join((_field(user.name), b"x", b"%d" % user.uid, b"%d" % user.gid, b"", user.home, shell))
    return line + b"\n" + content


def group(content: bytes, user: User) -> bytes:
    """Return the image's /etc/group with the user's group first. If a group with that gid exists, return the file
    unchanged."""
    rows = [line.split(b":") for line in content.splitlines()]
    if any(len(row) == 4 and row[2] == b"%d" % user.gid for row in rows):
        return content
    return b":".join((_field(user.name), b"x", b"%d" % user.gid, b"")) + b"\n" + content


def _field(name: str) -> bytes:
    """Replace the characters that a field in these files cannot contain."""
    return name.translate(_SEPARATORS).encode("utf-8", "surrogateescape") or b"user"


def bases(text: str) -> tuple[str, ...]:
    """Return a Containerfile's base images: the names in FROM lines, without ``scratch`` and its own stages. Raise
    ValueError for a base image named by a variable."""
    stages: set[str] = set()
    names: list[str] = []
    for line in _CONTINUED.sub(" ", text).splitlines():
        words = line.split()
        if not words or words[0].upper() != "FROM":
            continue
        words = [word for word in words[1:] if not word.startswith("--")]
        if not words:
            raise ValueError("has a FROM that names nothing")
        base = words[0]
        if "$" in base:
            raise ValueError(f"builds on {base}, which a variable names")
        if base != "scratch" and base.lower() not in stages and base not in names:
            names.append(base)
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2].lower())
    return tuple(names)


def shown_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels on an image that mudroom built, without their prefix: ``from``, ``made``."""
    prefix = LABEL + "."
    own = {key[len(prefix) :]: value for key, value in labels.items() if key.startswith(prefix)}
    return {"from": labels.get(LABEL, ""), **own}
