"""Images for level 2: made here, listed, removed. What the command line and other programs call.

Only images that mudroom has made are listed and removed; any other that the engine has can be named all the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mudroom.core.confinement.container import Engine, EngineKind
from mudroom.core.confinement.image import LABEL, name_error, shown_labels
from mudroom.core.confinement.image_recipe import Recipe, default_name, labels, recipe_error, suite_of
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.container.building import Progress, Workshop, build
from mudroom.sandbox.container.engine import ask, choose
from mudroom.sandbox.container.image import provide_host_image
from mudroom.sandbox.container.image_file import words
from mudroom.sandbox.container.trial import ready

_RELEASE = "/etc/os-release"


class Made(NamedTuple):
    """An image that mudroom has made."""

    names: tuple[str, ...]
    identity: str
    size: int
    """Bytes, as the engine counts them."""
    about: dict[str, str]
    """``from``, ``made``, ``suite``, ``packages`` …"""
    note: str = ""


def complete(recipe: Recipe) -> Recipe:
    """The same with what nobody has said: suite and name. Raises UsageError if it is wrong."""
    if recipe.kind == "debootstrap" and not recipe.suite:
        recipe = recipe._replace(suite=suite_of(_release()))
    if recipe.kind == "containerfile" and recipe.file:
        recipe = recipe._replace(file=os.path.abspath(recipe.file))
    wrong, hint = recipe_error(recipe)
    if wrong:
        raise UsageError(wrong, hint)
    return recipe._replace(name=recipe.name or default_name(recipe))


def _release() -> str:
    try:
        with open(_RELEASE, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def make(
    recipe: Recipe,
    *,
    state: bytes,
    environ: Mapping[bytes, bytes],
    made: str,
    progress: Progress,
    engine: EngineKind | None = None,
) -> Made:
    """Make an image, which replaces one of mudroom's with the same name. ``made``: when, in ISO 8601.

    Raises UsageError, Unsupported and MudroomError; nothing is left of it then.
    """
    recipe = complete(recipe)
    found = choose(environ, engine)
    if recipe.kind == "containerfile" and found.kind == "podman":  # by what its containers can be started here
        found = ready(found, provide_host_image(found, environ), environ, state)
    there = _described(found, [recipe.name], environ, _nothing)
    if there and "from" not in there[0].about:
        raise UsageError(f"there is an image {recipe.name} that mudroom has not made", "--name gives another name")
    note = build(Workshop(found, environ, state + b"/images", progress), recipe, recipe.name, labels(recipe, made))
    (one,) = _described(found, [recipe.name], environ)
    return one._replace(note=note)


def listed(*, environ: Mapping[bytes, bytes], engine: EngineKind | None = None) -> tuple[Engine, list[Made]]:
    """Those that mudroom has made, and whose they are. Raises Unsupported without an engine."""
    found = choose(environ, engine)
    argv = (*words(found), b"images", b"--quiet", b"--no-trunc", b"--filter", f"label={LABEL}".encode())
    ids = dict.fromkeys(ask(argv, environ).decode("ascii", "replace").split())
    return found, sorted(_described(found, list(ids), environ), key=lambda one: one.names)


def remove(name: str, *, environ: Mapping[bytes, bytes], engine: EngineKind | None = None) -> Made:
    """Raises UsageError if there is no such image, or not of mudroom's making; MudroomError if it is in use."""
    wrong = name_error(name)
    if wrong:
        raise UsageError(f"{name!r} {wrong}", "mudroom image ls lists them")
    found = choose(environ, engine)
    (one,) = _described(found, [name], environ)
    if "from" not in one.about:
        raise UsageError(f"mudroom has made no image {name}", "mudroom image ls lists them")
    ask((*words(found), b"image", b"rm", name.encode()), environ)
    return one


def _raise(error: MudroomError) -> list[Made]:
    raise UsageError(error.message, "mudroom image ls lists those that mudroom has made") from error


def _nothing(_error: MudroomError) -> list[Made]:
    return []


def _described(
    engine: Engine,
    names: list[str],
    environ: Mapping[bytes, bytes],
    missing: Callable[[MudroomError], list[Made]] = _raise,
) -> list[Made]:
    if not names:
        return []
    try:
        said = ask((*words(engine), b"image", b"inspect", *(name.encode() for name in names)), environ)
    except MudroomError as error:
        return missing(error)
    return [
        Made(
            tuple(one.get("RepoTags") or ()),
            one["Id"],
            one.get("Size") or 0,
            {key: value for key, value in shown_labels((one.get("Config") or {}).get("Labels") or {}).items() if value},
        )
        for one in json.loads(said)
    ]
