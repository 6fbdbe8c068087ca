"""``mudroom image``: the images for level 2 containers."""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections.abc import Callable, Mapping

from mudroom.cli.project_session import project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.container import HOST, name_error
from mudroom.core.settings import EngineChoice
from mudroom.core.text.plural import amount
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.containers.core.container import Engine, engine_words
from mudroom.ext.containers.core.image import LABEL, shown_labels
from mudroom.ext.containers.core.image_recipe import KINDS, Recipe, default_name, labels, recipe_error
from mudroom.ext.containers.engine.building import Progress, Workshop, build
from mudroom.ext.containers.engine.engine import ask, choose
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.trial import ready
from mudroom.policy.config import places
from mudroom.stage.private_directory import require_private
from mudroom.typing import Any, NamedTuple

# --- Images for level 2: make, list and remove them. Called by the command line and by other programs ---
# Only images that mudroom has made are listed and removed; a policy or command may name any other image that the engine
# has.


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


EXAMPLES = """\
examples:
  mudroom image ls                                    those that mudroom has made
  mudroom image build                                 a copy of this machine's own toolchain
  mudroom image build --file Containerfile            by the engine; its commands have no network
  mudroom image build --file Containerfile --network  they have, and base images may be pulled
  mudroom image rm mudroom-host-copy
  mudroom run --image mudroom-host-copy -- python3 --version

Without one, level 2 shows the host's own system directories and toolchains (container.image: host). Any other image
that the engine has can be named, too: --image debian:bookworm, or container.image in the policy. None is pulled."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument("words", nargs="*", metavar="NAME", help="rm: which")
    parser.add_argument("--engine", choices=("docker", "podman", "container"), help="default: as the policy says")
    made = parser.add_argument_group("build")
    made.add_argument(
        "--from",
        dest="kind",
        choices=KINDS,
        help="host: the world-readable files of /usr, /etc, /opt (default); containerfile: by the engine",
    )
    made.add_argument("--name", help="of the image; default: by its source")
    made.add_argument("--file", metavar="FILE", help="containerfile: which; means --from containerfile")
    made.add_argument("--context", metavar="DIR", help="containerfile: the directory it may copy from; default: none")
    made.add_argument("--network", action="store_true", help="containerfile: its commands may use the network")


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.action is None:  # argparse would require the name as well, which only rm needs
        raise UsageError(f"image needs an action: {', '.join(_ACTIONS)}", "mudroom image --help")
    run, wanted = _ACTIONS[args.action]
    if len(args.words) != wanted:
        takes, given = ("no name", "one name")[wanted], len(args.words) or "none"
        were = "was" if len(args.words) < 2 else "were"
        raise UsageError(f"image {args.action} takes {takes}, {given} {were} given", "mudroom image --help")
    if args.action == "rm" and args.words[0] == HOST:
        raise UsageError(
            f"{HOST} is the host's own toolchain, no image: it cannot be removed",
            "container.image in the policy, or --image, names another one to use",
        )
    if args.engine is None:
        args.engine = settings_of(context, project_of(context)).engine
    return run(args, context)


def _build(args: argparse.Namespace, context: Context) -> int:
    state = places(context.environ).state
    require_private(state)
    recipe = Recipe(
        args.kind or ("host" if args.file is None else "containerfile"),
        args.name or "",
        os.fsencode(args.file or ""),
        os.fsencode(args.context or ""),
        args.network,
    )
    image = make(
        recipe,
        state=os.path.realpath(state),
        environ=context.environ,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        progress=context.terminal.progress,
        engine=args.engine,
    )
    if context.as_json:
        context.terminal.json({"schema": "mudroom.image/1", **_row(image)})
        return 0
    name = image.names[0] if image.names else image.identity
    context.terminal.say(f"made {name}, {amount(image.size)}: --image {name} uses it, or container.image in the policy")
    if image.note:
        context.terminal.note(image.note)
    return 0


def _row(image: MadeImage) -> dict[str, Any]:
    return {"names": list(image.names), "id": image.identity, "bytes": image.size, **image.about}


def _ls(args: argparse.Namespace, context: Context) -> int:
    engine, images = listed(environ=context.environ, engine=args.engine)
    if context.as_json:
        rows = [_row(image) for image in images]
        context.terminal.json({"schema": "mudroom.images/1", "engine": engine.kind, "images": rows})
        return 0
    context.terminal.out(f"{HOST:<32}  {'':>9}  the host's own toolchain, shown read-only; the default")
    for image in images:
        words = [image.about.get("from", ""), image.about.get("made", "")]
        name = ", ".join(image.names) or image.identity[7:19]
        context.terminal.out(f"{name:<32}  {amount(image.size):>9}  {'  '.join(word for word in words if word)}")
    return 0


def _rm(args: argparse.Namespace, context: Context) -> int:
    image = remove(args.words[0], environ=context.environ, engine=args.engine)
    if context.as_json:
        context.terminal.json({"schema": "mudroom.image/1", "removed": args.words[0], **_row(image)})
    else:
        context.terminal.say(f"removed {args.words[0]}, {amount(image.size)}")
    return 0


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], int], int]] = {
    "build": (_build, 0),
    "ls": (_ls, 0),
    "rm": (_rm, 1),
}
"""Each action's function, and how many names it takes."""
