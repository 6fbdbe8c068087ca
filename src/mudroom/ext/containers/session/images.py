"""Images for level 2: make, list and remove them. Called by the command line and by other programs.

Only images that mudroom has made are listed and removed; a policy or command may name any other image that the engine
has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from mudroom.core.confinement.container import name_error
from mudroom.core.settings import EngineChoice
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.containers.core.container import Engine, engine_words
from mudroom.ext.containers.core.image import LABEL, shown_labels
from mudroom.ext.containers.core.image_recipe import Recipe, default_name, labels, recipe_error
from mudroom.ext.containers.engine.building import Progress, Workshop, build
from mudroom.ext.containers.engine.engine import ask, choose
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.trial import ready
from mudroom.typing import NamedTuple


class MadeImage(NamedTuple):
    """An image that mudroom has made."""

    names: tuple[str, ...]
    identity: str
    size: int
    """Bytes, as the engine counts them."""
    about: dict[str, str]
    """``from``, ``made``."""
    note: str = ""


def complete(recipe: Recipe) -> Recipe:
    """Return the recipe with a default name if it has none. Raise UsageError if it is wrong."""
    if recipe.kind == "containerfile" and recipe.file:
        recipe = recipe._replace(file=os.path.abspath(recipe.file))
    wrong, hint = recipe_error(recipe)
    if wrong:
        raise UsageError(wrong, hint)
    return recipe._replace(name=recipe.name or default_name(recipe))


def make(
    recipe: Recipe,
    *,
    state: bytes,
    environ: Mapping[bytes, bytes],
    made: str,
    progress: Progress,
    engine: EngineChoice = "auto",
) -> MadeImage:
    """Make an image. It replaces a mudroom image with the same name. ``made`` is the time in ISO 8601.

    Raise UsageError, Unsupported and MudroomError; a half-built image is removed.
    """
    recipe = complete(recipe)
    chosen = choose(environ, engine)
    # With the options that start its containers on this machine.
    if recipe.kind == "containerfile" and chosen.kind == "podman":
        chosen = ready(chosen, provide_host_image(chosen, environ), environ, state)
    existing = _describe(chosen, [recipe.name], environ, _ignore)
    if existing and "from" not in existing[0].about:
        message = f"there is an image {recipe.name} that mudroom has not made"
        raise UsageError(message, "choose another name with --name")
    note = build(Workshop(chosen, environ, state + b"/images", progress), recipe, recipe.name, labels(recipe, made))
    (image,) = _describe(chosen, [recipe.name], environ)
    return image._replace(note=note)


def listed(*, environ: Mapping[bytes, bytes], engine: EngineChoice = "auto") -> tuple[Engine, list[MadeImage]]:
    """Return the engine, and the images that mudroom has made with it. Raise Unsupported without an engine."""
    chosen = choose(environ, engine)
    argv = (*engine_words(chosen), b"images", b"--quiet", b"--no-trunc", b"--filter", f"label={LABEL}".encode())
    ids = dict.fromkeys(ask(argv, environ).decode("ascii", "replace").split())
    return chosen, sorted(_describe(chosen, list(ids), environ), key=lambda image: image.names)


def remove(name: str, *, environ: Mapping[bytes, bytes], engine: EngineChoice = "auto") -> MadeImage:
    """Remove an image. Raise UsageError if it does not exist or mudroom has not made it, MudroomError if it is in
    use."""
    wrong = name_error(name)
    if wrong:
        raise UsageError(f"{name!r} {wrong}", "mudroom image ls lists them")
    chosen = choose(environ, engine)
    (image,) = _describe(chosen, [name], environ)
    if "from" not in image.about:
        raise UsageError(f"mudroom has made no image {name}", "mudroom image ls lists them")
    ask((*engine_words(chosen), b"image", b"rm", name.encode()), environ)
    return image


def _raise(error: MudroomError) -> list[MadeImage]:
    raise UsageError(error.message, "mudroom image ls lists those that mudroom has made") from error


def _ignore(_error: MudroomError) -> list[MadeImage]:
    return []


def _describe(
    engine: Engine,
    names: list[str],
    environ: Mapping[bytes, bytes],
    missing: Callable[[MudroomError], list[MadeImage]] = _raise,
) -> list[MadeImage]:
    if not names:
        return []
    try:
        output = ask((*engine_words(engine), b"image", b"inspect", *(name.encode() for name in names)), environ)
    except MudroomError as error:
        return missing(error)
    images = []
    for info in json.loads(output):
        about = shown_labels((info.get("Config") or {}).get("Labels") or {})
        tags = tuple(info.get("RepoTags") or ())
        labels_set = {key: value for key, value in about.items() if value}
        images.append(MadeImage(tags, info["Id"], info.get("Size") or 0, labels_set))
    return images
