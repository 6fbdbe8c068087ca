"""``mudroom image``: the images for level 2 containers."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable

from mudroom.cli.project_session import project_of, settings_of
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.container import HOST
from mudroom.core.text.plural import amount
from mudroom.errors import UsageError
from mudroom.ext.containers.core.image_recipe import KINDS, Recipe
from mudroom.ext.containers.session.images import MadeImage, listed, make, remove
from mudroom.policy.config import places
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

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
        context.terminal.out(json.dumps({"schema": "mudroom.image/1", **_row(image)}))
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
        context.terminal.out(json.dumps({"schema": "mudroom.images/1", "engine": engine.kind, "images": rows}))
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
        context.terminal.out(json.dumps({"schema": "mudroom.image/1", "removed": args.words[0], **_row(image)}))
    else:
        context.terminal.say(f"removed {args.words[0]}, {amount(image.size)}")
    return 0


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], int], int]] = {
    "build": (_build, 0),
    "ls": (_ls, 0),
    "rm": (_rm, 1),
}
"""Each action's function, and how many names it takes."""
