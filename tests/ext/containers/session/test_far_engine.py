"""Level 2 by an engine that only a command line reaches, and that is a program of the test: no engine is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.core.image import _MACHINES
from mudroom.ext.containers.engine import engine
from mudroom.ext.containers.session import containers
from whole_text import whole

pytestmark = [pytest.mark.both_users, if_namespaces]

ENGINE = """#!/bin/sh
case "$1" in
run) exec cat ;;
exec) shift 7; exec "$@" ;;
image) echo '%s' ;;
esac
"""


def test_the_host_waits_for_the_clock_itself(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's program knows no time before which the command must not start."""
    program = tmp_path / "docker"
    machine = _MACHINES.get(os.uname().machine, os.uname().machine)
    image = {"Id": "sha256:" + "0" * 64, "Config": {}, "RepoTags": ["x"], "Os": "linux", "Architecture": machine}
    program.write_text(ENGINE % json.dumps([image]))
    program.chmod(0o755)
    far = Engine("docker", os.fsencode(program), remote=True)
    for room in (engine, containers):
        monkeypatch.setattr(room, "current", lambda *_wanted: far)
    result = place.session(Settings(network="none", image="x", level=2)).run([b"echo", b"hi"])
    assert (result.stdout, result.level) == (b"hi\n", 2)


def test_without_an_image_nothing_runs_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Engine("docker", b"/usr/bin/docker", remote=True)
    for room in (engine, containers):
        monkeypatch.setattr(room, "current", lambda *_wanted: far)
    session = place.session(Settings(network="none", level=2))
    told = (
        "level 2 without an image needs an engine whose containers run on this machine itself, and can be shown its "
        "programs; found: one whose containers run in a virtual machine "
        "(name an image: container.image in the policy, or --image)"
    )
    with pytest.raises(Unsupported, match=whole(told)):
        session.run([b"true"])
    assert list(session.vault.forks()) == [] and os.listdir(session.vault.path + b"/layers") == []
