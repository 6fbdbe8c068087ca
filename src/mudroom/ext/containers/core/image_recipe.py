"""Recipes for container images, and the command lines that build them. Pure.

Rules of this file: a recipe is a value that can be printed. Its users need not know the engine.

Sources: debootstrap(8), mmdebstrap(1), docker-import(1), docker-build(1), podman-import(1), podman-build(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mudroom.core.text.regex import regex
from mudroom.ext.containers.core.image import LABEL, own_name_error
from mudroom.typing import Literal, NamedTuple

Kind = Literal["host", "debootstrap", "containerfile"]
KINDS: tuple[Kind, ...] = ("host", "debootstrap", "containerfile")
_SUITE = regex(r"[a-z][a-z0-9-]{0,63}")
_PACKAGE = regex(r"[a-z0-9][a-z0-9+.-]{0,127}")
_MIRROR = regex(r"(?:https?|file)://[!-~]{1,1024}")
USUAL = ("ca-certificates", "git")
"""Packages in every bootstrapped image in addition to the suite's essential packages."""
DEBIAN, FALLBACK = "http://deb.debian.org/debian", "stable"


class Recipe(NamedTuple):
    kind: Kind
    name: str = ""
    """Empty: the name returned by ``default_name``."""
    suite: str = ""
    include: tuple[str, ...] = ()
    """Packages."""
    mirror: str = ""
    file: bytes = b""
    """A Containerfile."""
    context: bytes = b""
    """The directory from which it may copy files; empty: none."""
    network: bool = False
    """Its commands may use the host's network, and missing base images may be pulled."""


def recipe_error(recipe: Recipe) -> tuple[str, str]:
    """Return a recipe's error, and a hint; both empty if it is valid."""
    error = own_name_error(recipe.name) if recipe.name else ""
    if error:
        return f"the name {recipe.name!r} {error}", "lower case letters, digits and - _ . / : as in my-tools:1"
    if recipe.kind == "containerfile" and not recipe.file:
        return "which Containerfile?", "mudroom image build --file Containerfile"
    for option, kind in _BELONGS.items():
        if getattr(recipe, option) and recipe.kind != kind:
            return f"--{option} is for --from {kind}", f"--from is {recipe.kind}"
    if recipe.suite and not _SUITE.fullmatch(recipe.suite):
        return f"{recipe.suite!r} is not the name of a suite", "bookworm, trixie, noble"
    invalid = next((name for name in recipe.include if not _PACKAGE.fullmatch(name)), None)
    if invalid is not None:
        return f"{invalid!r} is not the name of a package", "--include python3 --include nodejs"
    if recipe.mirror and not _MIRROR.fullmatch(recipe.mirror):
        return f"{recipe.mirror!r} is not the address of a mirror", f"--mirror {DEBIAN}"
    return "", ""


_BELONGS: dict[str, Kind] = {
    **dict.fromkeys(("suite", "include", "mirror"), "debootstrap"),
    **dict.fromkeys(("file", "context", "network"), "containerfile"),
}


def default_name(recipe: Recipe) -> str:
    """Return a name derived from the recipe's source."""
    if recipe.kind == "host":
        return "mudroom-host-copy"
    if recipe.kind == "debootstrap":
        return f"mudroom-{recipe.suite}"
    directory = recipe.file.rpartition(b"/")[0].rpartition(b"/")[2].decode("utf-8", "replace").lower()
    words = re.sub(r"[^a-z0-9]+", "-", directory).strip("-")
    return f"mudroom-{words[:64].strip('-') or 'image'}"


def suite_of(release: str) -> str:
    """Return this machine's suite from its os-release(5), or ``stable`` if it is not Debian."""
    settings = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', release, re.M))
    name = settings.get("VERSION_CODENAME", "")
    return name if settings.get("ID") == "debian" and _SUITE.fullmatch(name) else FALLBACK


def labels(recipe: Recipe, made: str) -> dict[str, str]:
    """Return an image's labels. ``made``: creation time in ISO 8601."""
    details = {"made": made, "suite": recipe.suite, "packages": " ".join(recipe.include), "mirror": recipe.mirror}
    return {LABEL: recipe.kind, **{f"{LABEL}.{key}": value for key, value in details.items() if value}}


def import_words(name: str, marks: Mapping[str, str], environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the engine's arguments that import a tar archive from standard input as an image."""
    changes = [f"LABEL {key}={_quoted(value)}" for key, value in marks.items()]
    changes += [f"ENV {key}={_quoted(value)}" for key, value in environment.items()]
    options = [word for change in changes for word in (b"--change", change.encode())]
    return (b"import", *options, b"-", name.encode())


def _quoted(value: str) -> str:
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def build_words(recipe: Recipe, name: str, marks: Mapping[str, str], *, pulls: bool) -> Iterator[bytes]:
    """Yield the engine's arguments that build a Containerfile. ``pulls``: this engine has an option not to pull."""
    yield from (b"build", b"--force-rm", b"--file", recipe.file, b"--tag", name.encode())  # leaves no container behind
    for key, value in marks.items():
        yield from (b"--label", f"{key}={value}".encode())
    if not recipe.network:
        yield b"--network=none"
        if pulls:
            yield b"--pull=never"
    yield recipe.context


def bootstrap_words(recipe: Recipe, target: bytes, *, streams: bool) -> tuple[bytes, ...]:
    """Return the bootstrap program's arguments: debootstrap fills a directory, mmdebstrap (``streams``) writes an
    archive."""
    packages = ",".join(dict.fromkeys((*USUAL, *recipe.include)))
    mirror = (recipe.mirror.encode(),) if recipe.mirror else ()
    words = (b"--variant=minbase", b"--include=" + packages.encode(), recipe.suite.encode())
    return (*words, b"-" if streams else target, *mirror)


def error_line(output: str) -> str:
    """Return a failed program's last output line that reports an error, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W: Failure")) or "rror:" in line]
    return (errors or lines or ["it failed and said nothing"])[-1]


def split_names(words: Iterable[str]) -> tuple[str, ...]:
    """Split comma-separated package names, as in ``--include a,b --include c``."""
    return tuple(name for word in words for name in word.split(",") if name)
