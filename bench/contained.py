"""Level 2: a command in a warm container and in a cold one, beside what an engine takes by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from bench.measure import Contestant, Finding, Lap, against, clocked, command, interleave, reason, timed, unmeasured
from bench.place import Place, Scale, discard, fill, have, new_place, run
from mudroom.core.registry import is_installed
from mudroom.errors import MudroomError
from mudroom.session import Session

TRUE = "/bin/true"
_RUN = "docker run --rm --network none"
_EXEC = "docker exec, in one that runs"
_OWN = ["--rm", "--network", "none", "--volume", "/usr:/usr:ro"]
"""The image is empty: its links lead into the host's /usr, as they do for mudroom's own containers."""


def contained(base: bytes, scale: Scale) -> Iterator[Finding]:
    """``/bin/true`` in a running session at level 2: in a container that is there, and in a new one each time."""
    if not have("docker"):
        yield unmeasured("warm", "true in a warm container", "docker is not installed")
        return
    if not is_installed("containers"):
        yield unmeasured("warm", "true in a warm container", "this installation has no containers")
        return
    from mudroom.ext.containers.engine.image import HOST_IMAGE
    from mudroom.ext.containers.engine.pool import Rules
    from mudroom.ext.containers.session.containers import Containers

    with new_place(base, "warm") as place, new_place(base, "cold") as other:
        fill(place.project, 10)
        fill(other.project, 10)
        try:
            with _session(place) as warm, _session(other) as cold, _running(HOST_IMAGE) as name:
                cast(Containers, cold.machine.containers)._pool.rules = Rules(uses=1)
                contestants = [
                    _lap("warm", warm, "bench"), _lap("cold", cold, "bench-cold"),
                    timed(_EXEC, ["docker", "exec", name, TRUE]),
                    timed(_RUN, ["docker", "run", *_OWN, HOST_IMAGE, TRUE]),
                ]  # fmt: skip
                found = interleave(contestants, scale.cold, warm_up=3)
        except (MudroomError, RuntimeError, subprocess.CalledProcessError) as error:
            yield unmeasured("warm", "true in a warm container", reason(error))
            return
    yield Finding("warm", "true in a warm container", found["warm"], None, against(found, (_EXEC, _RUN)))
    yield Finding("container", "true in a new container, running session", found["cold"], None, against(found, (_RUN,)))


@contextmanager
def _session(place: Place) -> Iterator[Session]:
    with place.session(level=2) as session:
        engines = {key: value for key, value in os.environb.items() if key.startswith((b"DOCKER_", b"PATH"))}
        session.machine.confinement.variables = {**session.machine.confinement.variables, **engines}
        discard(session, run(session, TRUE))  # the image and the runtime are there from here on
        yield session


def _lap(name: str, session: Session, fork: str) -> Contestant:
    """In the same fork each time: a container is one fork's."""

    def lap() -> Iterator[Lap]:
        seconds, result = clocked(lambda: session.run([os.fsencode(TRUE)], fork=fork))
        if result.exit_code or result.level != 2:
            raise RuntimeError(f"true has failed: {result.stderr.decode(errors='replace')}")
        yield name, seconds

    return lap


@contextmanager
def _running(image: str) -> Iterator[str]:
    name = f"mudroom-bench-{os.getpid()}"
    command(["docker", "run", "--detach", "--name", name, *_OWN, image, "/bin/sleep", "3600"])
    try:
        yield name
    finally:
        command(["docker", "rm", "--force", name])
