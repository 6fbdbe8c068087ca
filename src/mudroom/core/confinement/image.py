"""Images that containers are made from: their names, what an engine says of one, and the user's entry in them. Pure.

Rules of this file: an image is somebody else's. What is taken from it is checked; what cannot be used is said in one
line, before anything is started.

Sources: the grammar of references (distribution/reference of the OCI distribution project), ``docker image inspect``
and ``podman image inspect``, passwd(5), group(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mudroom.core.tree.path import is_below, show

HOST = "host"
"""Not an image: the host's own system directories and toolchains, shown read-only."""
LABEL = "mudroom.image"
"""Images that mudroom has made have it; its value is what they were made from."""
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_DOMAIN = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME = re.compile(
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
    r"|sha256:[0-9a-f]{64}"
)
_OWN = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?")
_LONGEST = 255
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""uname(2) → GOARCH, by which images are named."""


class Image(NamedTuple):
    """One that is there and can be used."""

    name: str
    """As it was named."""
    identity: str
    """Content that has this one is this image: ``sha256:…``."""
    environment: tuple[tuple[bytes, bytes], ...] = ()
    volumes: tuple[bytes, ...] = ()
    """Places at which an engine would mount something by itself."""


class User(NamedTuple):
    """Whose commands run in a container."""

    name: str
    uid: int
    gid: int
    home: bytes


def name_error(name: str) -> str:
    """Why this cannot be the name of an image; empty if it can."""
    if not name:
        return "is empty"
    if len(name) > _LONGEST:
        return f"is longer than {_LONGEST} characters"
    return "" if _NAME.fullmatch(name) else "is not the name of an image"


def own_name_error(name: str) -> str:
    """The same for an image that is to be made here: it is of no registry, and no digest is known beforehand."""
    if name == HOST:
        return "means the host's own toolchain"
    own = _OWN.fullmatch(name) and not name.startswith("sha256:")
    return name_error(name) or ("" if own else "is not a name for an image of this machine")


def parse_inspected(name: str, said: Any, machine: str) -> Image:
    """What an engine says of an image. ``machine``: this one, as uname(2) has it. Raises ValueError, a clause about
    the image, if it is of no use here."""
    found = said[0] if isinstance(said, list) and len(said) == 1 else None
    if not isinstance(found, dict) or not isinstance(found.get("Id"), str):
        raise ValueError("is described by the engine in a way that is not understood")
    system, made_for, ours = found.get("Os"), found.get("Architecture"), _MACHINES.get(machine, machine)
    if system != "linux":
        raise ValueError(f"is made for {system}, not for Linux")
    if made_for != ours:
        raise ValueError(f"is made for {made_for}, this machine is {ours}")
    settings = found.get("Config") or {}
    pairs = [one.partition("=") for one in settings.get("Env") or ()]
    environment = tuple((key.encode(), value.encode()) for key, equals, value in pairs if key and equals)
    unusable = next((key for key, _value in environment if key in _TRACING), None)
    if unusable is not None:
        raise ValueError(f"sets {unusable.decode()}, with which no program of it runs")
    identity = found["Id"] if found["Id"].startswith("sha256:") else "sha256:" + found["Id"]
    return Image(name, identity, environment, tuple(sorted({_place(one) for one in settings.get("Volumes") or ()})))


_TRACING = (b"LD_TRACE_LOADED_OBJECTS",)
"""By it the loader lists what it would load, instead of running it, though it be empty: ld.so(8)."""


def _place(volume: str) -> bytes:
    """As engines understand it: an absolute path without detours."""
    parts: list[str] = []
    for part in volume.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(["", *parts]).encode() or b"/"


OWN_PLACES = (b"/dev", b"/proc", b"/sys", b"/.mudroom", b"/.mudroom-door")
"""What no volume may cover in a container of ours."""


def volumes_in_memory(image: Image, kept: Iterable[bytes], mounted: Iterable[bytes]) -> tuple[bytes, ...]:
    """The image's volumes as empty directories in memory, but for those in whose place something else is mounted.
    ``kept``: what none of them may be at, in or above. ``mounted``: what none of them may be in. Raises ValueError, a
    clause about the image, for one that cannot be had."""
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
    """An image's /etc/passwd with the user in it: first, so that it is found by uid and by name, whoever else has
    either. The shell is that of the image's root."""
    rows = [line.split(b":") for line in content.splitlines()]
    shell = next((row[6] for row in rows if len(row) == 7 and row[2] == b"0" and row[6]), b"/bin/sh")
    line = b":".join((_field(user.name), b"x", b"%d" % user.uid, b"%d" % user.gid, b"", user.home, shell))
    return line + b"\n" + content


def group(content: bytes, user: User) -> bytes:
    """An image's /etc/group with the user's group in it; one that has its number stays the first."""
    rows = [line.split(b":") for line in content.splitlines()]
    if any(len(row) == 4 and row[2] == b"%d" % user.gid for row in rows):
        return content
    return b":".join((_field(user.name), b"x", b"%d" % user.gid, b"")) + b"\n" + content


def _field(name: str) -> bytes:
    """A name as a field of these files can hold it."""
    return re.sub(rb"[:\n\0]", b"_", name.encode("utf-8", "surrogateescape")) or b"user"


def bases(text: str) -> tuple[str, ...]:
    """The images that a Containerfile builds on: its FROM lines, but for ``scratch`` and its own stages. Raises
    ValueError for one that a variable names."""
    stages: set[str] = set()
    found: list[str] = []
    for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines():
        words = line.split()
        if not words or words[0].upper() != "FROM":
            continue
        words = [word for word in words[1:] if not word.startswith("--")]
        if not words:
            raise ValueError("has a FROM that names nothing")
        base = words[0]
        if "$" in base:
            raise ValueError(f"builds on {base}, which a variable names")
        if base != "scratch" and base.lower() not in stages and base not in found:
            found.append(base)
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2].lower())
    return tuple(found)


def shown_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """What an image of ours says about itself: ``from``, ``made``, ``suite`` …"""
    prefix = LABEL + "."
    own = {key[len(prefix) :]: value for key, value in labels.items() if key.startswith(prefix)}
    return {"from": labels.get(LABEL, ""), **own}
