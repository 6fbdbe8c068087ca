"""Description of the container in which a command would run, for ``run --explain``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mudroom.core.confinement.fallback import Mode
from mudroom.core.tree.path import show
from mudroom.ext.containers.core.container import Container, Engine
from mudroom.typing import Any, NamedTuple


class ContainerReport(NamedTuple):
    engine: Engine
    user: int
    image: str = ""
    """Empty: the host's own toolchain."""
    tried: bool = False
    """Whether a trial has shown the capabilities of this engine's containers. No container is started to find out."""


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


def explain_container(report: ContainerReport, mode: Mode) -> Iterator[str]:
    """Yield the lines before those of the plan."""
    image = f"the image {report.image}" if report.image else "the host's own toolchain"
    memory = ", ".join(show(path) for path in Container._field_defaults["private"])
    yield (
        f"in a container of {report.engine.title}, made from {image}, as user {report.user}: no network but its own "
        f"loopback, no capability, no way to gain one, a read-only root, {memory} in memory"
    )
    yield _IN_IT[mode]
    if not report.tried:
        yield _UNTRIED


def as_json(report: ContainerReport) -> dict[str, Any]:
    return {
        "engine": report.engine.kind,
        "version": report.engine.version,
        "rootless": report.engine.rootless,
        "image": report.image or None,
        "user": report.user,
        "tried": report.tried,
    }
