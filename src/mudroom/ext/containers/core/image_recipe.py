"""Recipes for container images, and the command lines that build them. Pure.

Rules of this file: a recipe is a value that can be printed. Its users need not know the engine.

Sources: docker-import(1), docker-build(1), podman-import(1), podman-build(1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mudroom.ext.containers.core.image import LABEL, own_name_error
from mudroom.typing import Literal, NamedTuple

Kind = Literal["host", "containerfile"]
KINDS: tuple[Kind, ...] = ("host", "containerfile")


class Recipe(NamedTuple):
    kind: Kind
    name: str = ""
    """Empty: the name returned by ``default_name``."""
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
    for option in ("file", "context", "network"):
        if getattr(recipe, option) and recipe.kind != "containerfile":
            return f"--{option} is for --from containerfile", f"--from is {recipe.kind}"
    return "", ""


def default_name(recipe: Recipe) -> str:
    """Return a name derived from the recipe's source."""
    if recipe.kind == "host":
        return "mudroom-host-copy"
    directory = recipe.file.rpartition(b"/")[0].rpartition(b"/")[2].decode("utf-8", "replace").lower()
    words = re.sub(r"[^a-z0-9]+", "-", directory).strip("-")
    return f"mudroom-{words[:64].strip('-') or 'image'}"


def labels(recipe: Recipe, made: str) -> dict[str, str]:
    """Return an image's labels. ``made``: creation time in ISO 8601."""
    return {LABEL: recipe.kind, f"{LABEL}.made": made}


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


def error_line(output: str) -> str:
    """Return a failed program's last output line that reports an error, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "W: Failure")) or "rror:" in line]
    return (errors or lines or ["it failed and said nothing"])[-1]
