"""A session with a fork that is mounted for the user, by each kind of mount."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.result import Result
from mudroom.session import Session
from mudroom.stage.views.mount import Kind, is_mounted

SH = (b"sh", b"-c")
KINDS = [*(["overlay"] if os.geteuid() == 0 else []), "fuse", "copy"]
"""The kernel mounts for root alone."""
HAS_FUSE = bool(shutil.which("fuse-overlayfs")) and os.access("/dev/fuse", os.R_OK | os.W_OK)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "fuse" and not HAS_FUSE:
        pytest.skip("a mount by fuse cannot be had here")
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    place.write("file", "one\n")
    place.write("d/x", "x\n")
    place.write("d/y", "y\n")
    place.write("tool.sh", "#!/bin/sh\necho tool\n", 0o755)
    session = place.session()
    yield session
    for name, note in session.forks.mounts().items():
        if is_mounted(note.place):
            session.forks.unmount(name)


def sh(session: Session, script: str, fork: str = "f") -> Result:
    return session.run([*SH, script.encode()], fork=fork)


def mounted(session: Session, kind: Kind, fork: str = "f") -> Path:
    return Path(os.fsdecode(session.forks.mount(fork, kind=kind).place))


def changed(session: Session, fork: str = "f") -> set[str]:
    return {os.fsdecode(change.path) for change in session.changes.of(fork).changes}


def mounted_new(session: Session, kind: Kind) -> Path:
    session.forks.new("f")
    return mounted(session, kind)
