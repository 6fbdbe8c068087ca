"""Level 2 for the kernel: ``session/confinement/level_two.py`` says what it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mudroom.core.confinement.container import user_of
from mudroom.core.confinement.fallback import Mode
from mudroom.core.settings import EngineChoice
from mudroom.core.tree.path import show
from mudroom.ext.containers.core.container import Container, Engine
from mudroom.ext.containers.engine.engine import current, needed, why_none
from mudroom.ext.containers.engine.trial import recall
from mudroom.ext.containers.session.containers import Containers as containers  # noqa: N813 - a function of the module
from mudroom.stage import disk
from mudroom.typing import Any, NamedTuple

__all__ = ["containers", "needed", "outlook", "why_none"]

_IN_IT: Mapping[str, str] = {
    "overlay": "in it, namespaces of the command's own, with a staged view",
    "copy": "in it, namespaces of the command's own, with a staged copy of the project",
    "plain": "in it, no namespaces of the command's own: a staged copy of the project, and the walls of the container, "
    "which it shares with what else runs in its fork",
    "remote": "in it, no namespaces of the command's own: a staged copy of the project, in a container for this "
    "command alone, which only the engine's command line reaches",
}
_UNTRIED = (
    "no container has been started with this engine yet: the first one tells whether namespaces can be made in it, and "
    "without them it is a staged copy and the container's walls alone"
)


class ContainerReport(NamedTuple):
    engine: Engine
    user: int
    image: str = ""
    """Empty: the host's own toolchain."""
    tried: bool = False
    """Whether a trial has shown what this engine's containers can do. No container is started to find out."""

    def lines(self, mode: Mode) -> Iterator[str]:
        image = f"the image {self.image}" if self.image else "the host's own toolchain"
        memory = ", ".join(show(path) for path in Container._field_defaults["private"])
        yield (
            f"in a container of {self.engine.title}, made from {image}, as user {self.user}: no network but its own "
            f"loopback, no capability, no way to gain one, a read-only root, {memory} in memory"
        )
        yield _IN_IT[mode]
        if not self.tried:
            yield _UNTRIED

    def as_json(self) -> dict[str, Any]:
        engine = {"engine": self.engine.kind, "version": self.engine.version, "rootless": self.engine.rootless}
        return {**engine, "image": self.image or None, "user": self.user, "tried": self.tried}


def outlook(environ: Mapping[bytes, bytes], wanted: EngineChoice, state: bytes, image: str) -> ContainerReport:
    """Return the container that a command would get, as far as known without starting a container."""
    engine = current(environ, wanted)
    tried = engine if engine.remote else recall(engine, environ, state)
    user, _group = user_of(disk.user(), disk.group())
    return ContainerReport(tried or engine, user, image, tried is not None)
