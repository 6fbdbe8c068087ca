"""What an image is made of, and the command lines that make it. Pure.

Rules of this file: a recipe is a value that can be printed; who it is for need not know which engine there is.

Sources: debootstrap(8), mmdebstrap(1), docker-import(1), docker-build(1), podman-import(1), podman-build(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from mudroom.core.confinement.image import LABEL, own_name_error

Kind = Literal["host", "debootstrap", "containerfile"]
KINDS: tuple[Kind, ...] = ("host", "debootstrap", "containerfile")
_SUITE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{0,127}")
_MIRROR = re.compile(r"(?:https?|file)://[!-~]{1,1024}")
USUAL = ("ca-certificates", "git")
"""What is in every bootstrapped image besides what its suite calls essential."""
DEBIAN, FALLBACK = "http://deb.debian.org/debian", "stable"


class Recipe(NamedTuple):
    kind: Kind
    name: str = ""
    """Empty: what ``default_name`` says."""
    suite: str = ""
    include: tuple[str, ...] = ()
    """Packages."""
    mirror: str = ""
    file: bytes = b""
    """A Containerfile."""
    context: bytes = b""
    """The directory that it may copy from; empty: nothing."""
    network: bool = False
    """What it runs may use the host's network, and missing bases may be pulled."""


def recipe_error(recipe: Recipe) -> tuple[str, str]:
    """What is wrong with one, and a hint; both empty if nothing is."""
    wrong = own_name_error(recipe.name) if recipe.name else ""
    if wrong:
        return f"the name {recipe.name!r} {wrong}", "lower case letters, digits and - _ . / : as in my-tools:1"
    if recipe.kind == "containerfile" and not recipe.file:
        return "which Containerfile?", "mudroom image build --file Containerfile"
    for option, kind in _BELONGS.items():
        if getattr(recipe, option) and recipe.kind != kind:
            return f"--{option} is for --from {kind}", f"--from is {recipe.kind}"
    if recipe.suite and not _SUITE.fullmatch(recipe.suite):
        return f"{recipe.suite!r} is not the name of a suite", "bookworm, trixie, noble"
    bad = next((name for name in recipe.include if not _PACKAGE.fullmatch(name)), None)
    if bad is not None:
        return f"{bad!r} is not the name of a package", "--include python3 --include nodejs"
    if recipe.mirror and not _MIRROR.fullmatch(recipe.mirror):
        return f"{recipe.mirror!r} is not the address of a mirror", f"--mirror {DEBIAN}"
    return "", ""


_BELONGS: dict[str, Kind] = {
    **dict.fromkeys(("suite", "include", "mirror"), "debootstrap"),
    **dict.fromkeys(("file", "context", "network"), "containerfile"),
}


def default_name(recipe: Recipe) -> str:
    """Of what it is made from."""
    if recipe.kind == "host":
        return "mudroom-host-copy"
    if recipe.kind == "debootstrap":
        return f"mudroom-{recipe.suite}"
    directory = recipe.file.rpartition(b"/")[0].rpartition(b"/")[2].decode("utf-8", "replace").lower()
    words = re.sub(r"[^a-z0-9]+", "-", directory).strip("-")
    return f"mudroom-{words[:64].strip('-') or 'image'}"


def suite_of(release: str) -> str:
    """The suite of this machine, by its os-release(5); the stable one where that is no Debian."""
    found = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', release, re.M))
    name = found.get("VERSION_CODENAME", "")
    return name if found.get("ID") == "debian" and _SUITE.fullmatch(name) else FALLBACK


def labels(recipe: Recipe, made: str) -> dict[str, str]:
    """What an image says about itself. ``made``: when, in ISO 8601."""
    more = {"made": made, "suite": recipe.suite, "packages": " ".join(recipe.include), "mirror": recipe.mirror}
    return {LABEL: recipe.kind, **{f"{LABEL}.{key}": value for key, value in more.items() if value}}


def import_words(name: str, marks: Mapping[str, str], environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """To an engine: take a tar archive from the standard input as an image."""
    changes = [f"LABEL {key}={_quoted(value)}" for key, value in marks.items()]
    changes += [f"ENV {key}={_quoted(value)}" for key, value in environment.items()]
    options = [word for change in changes for word in (b"--change", change.encode())]
    return (b"import", *options, b"-", name.encode())


def _quoted(value: str) -> str:
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def build_words(recipe: Recipe, name: str, marks: Mapping[str, str], *, pulls: bool) -> Iterator[bytes]:
    """To an engine: build a Containerfile. ``pulls``: this engine can be told not to."""
    yield from (b"build", b"--force-rm", b"--file", recipe.file, b"--tag", name.encode())  # no container is left of it
    for key, value in marks.items():
        yield from (b"--label", f"{key}={value}".encode())
    if not recipe.network:
        yield b"--network=none"
        if pulls:
            yield b"--pull=never"
    yield recipe.context


def bootstrap_words(recipe: Recipe, target: bytes, *, streams: bool) -> tuple[bytes, ...]:
    """What follows the program's name: debootstrap fills a directory, mmdebstrap (``streams``) writes an archive."""
    packages = ",".join(dict.fromkeys((*USUAL, *recipe.include)))
    mirror = (recipe.mirror.encode(),) if recipe.mirror else ()
    words = (b"--variant=minbase", b"--include=" + packages.encode(), recipe.suite.encode())
    return (*words, b"-" if streams else target, *mirror)


def last_words(output: str) -> str:
    """Of what a program said before it failed: its last line that names an error, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W: Failure")) or "rror:" in line]
    return (errors or lines or ["it failed and said nothing"])[-1]


def split(words: Iterable[str]) -> tuple[str, ...]:
    """``--include a,b --include c``."""
    return tuple(name for word in words for name in word.split(",") if name)
